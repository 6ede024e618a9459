// The peer: alpha * x * w and its gradient as a person writes them for PyTorch in C++, with TORCH_LIBRARY and
// torch::autograd::Function. It checks what oneop checks and computes only the gradients that are asked for.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace {

using at::Tensor;

void check(const Tensor &x, const Tensor &w) {
  TORCH_CHECK(x.scalar_type() == w.scalar_type(), "muladd: x is ", x.scalar_type(), " and w is ", w.scalar_type());
  TORCH_CHECK(x.device() == w.device(), "muladd: x is on ", x.device(), " and w is on ", w.device());
  TORCH_CHECK(x.sizes() == w.sizes(), "muladd: x has shape ", x.sizes(), " and w has shape ", w.sizes());
}

Tensor muladd_cpu(const Tensor &x, const Tensor &w, double alpha) {
  check(x, w);
  const Tensor xc = x.contiguous(), wc = w.contiguous();
  Tensor out = at::empty_like(xc);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "muladd", [&] {
    const auto *xs = xc.const_data_ptr<scalar_t>();
    const auto *ws = wc.const_data_ptr<scalar_t>();
    auto *ys = out.mutable_data_ptr<scalar_t>();
    const auto a = static_cast<scalar_t>(alpha);
    for (int64_t i = 0, n = out.numel(); i < n; ++i)
      ys[i] = a * xs[i] * ws[i];
  });
  return out;
}

std::tuple<Tensor, Tensor> muladd_backward_cpu(const Tensor &grad, const Tensor &x, const Tensor &w, double alpha,
                                               bool needs_x, bool needs_w) {
  check(x, w);
  const Tensor gc = grad.contiguous(), xc = x.contiguous(), wc = w.contiguous();
  Tensor grad_x, grad_w;
  if (needs_x)
    grad_x = at::empty_like(xc);
  if (needs_w)
    grad_w = at::empty_like(wc);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "muladd_backward", [&] {
    const auto *gs = gc.const_data_ptr<scalar_t>();
    const auto *xs = xc.const_data_ptr<scalar_t>();
    const auto *ws = wc.const_data_ptr<scalar_t>();
    const auto a = static_cast<scalar_t>(alpha);
    const int64_t n = gc.numel();
    if (needs_x) {
      auto *out = grad_x.mutable_data_ptr<scalar_t>();
      for (int64_t i = 0; i < n; ++i)
        out[i] = a * gs[i] * ws[i];
    }
    if (needs_w) {
      auto *out = grad_w.mutable_data_ptr<scalar_t>();
      for (int64_t i = 0; i < n; ++i)
        out[i] = a * gs[i] * xs[i];
    }
  });
  return {grad_x, grad_w};
}

Tensor call_muladd(const Tensor &x, const Tensor &w, double alpha) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("peer::muladd", "").typed<decltype(muladd_cpu)>();
  return op.call(x, w, alpha);
}

std::tuple<Tensor, Tensor> call_muladd_backward(const Tensor &grad, const Tensor &x, const Tensor &w, double alpha,
                                                bool needs_x, bool needs_w) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("peer::muladd_backward", "")
                             .typed<decltype(muladd_backward_cpu)>();
  return op.call(grad, x, w, alpha, needs_x, needs_w);
}

struct MulAdd : torch::autograd::Function<MulAdd> {
  static Tensor forward(torch::autograd::AutogradContext *context, const Tensor &x, const Tensor &w, double alpha) {
    context->save_for_backward({x, w});
    context->saved_data["alpha"] = alpha;
    const at::AutoDispatchBelowADInplaceOrView guard;
    return call_muladd(x, w, alpha);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context,
                                                 const torch::autograd::variable_list &grads) {
    const auto saved = context->get_saved_variables();
    auto [grad_x, grad_w] = call_muladd_backward(grads[0], saved[0], saved[1], context->saved_data["alpha"].toDouble(),
                                                 context->needs_input_grad(0), context->needs_input_grad(1));
    return {grad_x, grad_w, Tensor()};
  }
};

Tensor muladd_autograd(const Tensor &x, const Tensor &w, double alpha) {
  if (at::GradMode::is_enabled() && (x.requires_grad() || w.requires_grad()))
    return MulAdd::apply(x, w, alpha);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_muladd(x, w, alpha);
}

} // namespace

TORCH_LIBRARY(peer, m) {
  m.def("muladd(Tensor x, Tensor w, *, float alpha=1.0) -> Tensor");
  m.def(
      "muladd_backward(Tensor grad, Tensor x, Tensor w, float alpha, bool needs_x, bool needs_w) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(peer, CPU, m) {
  m.impl("muladd", muladd_cpu);
  m.impl("muladd_backward", muladd_backward_cpu);
}
TORCH_LIBRARY_IMPL(peer, Autograd, m) { m.impl("muladd", muladd_autograd); }
