// A program without Python: serve MODEL INPUTS OUTPUTS [LIBRARY...] runs a package of AOTInductor.
//
// INPUTS is what torch.save wrote for a list of tensors; OUTPUTS is written likewise. Each LIBRARY is opened first.
#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/Tensor.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>

static std::vector<at::Tensor> read_tensors(const char *path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto list = torch::jit::pickle_load(bytes);
  std::vector<at::Tensor> tensors;
  for (const c10::IValue &item : list.toListRef())
    tensors.push_back(item.toTensor());
  return tensors;
}

static void write_tensors(const char *path, const std::vector<at::Tensor> &tensors) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const auto &tensor : tensors)
    list.push_back(tensor);
  const auto bytes = torch::jit::pickle_save(list);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

int main(int argc, char **argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: serve MODEL INPUTS OUTPUTS [LIBRARY...]\n");
    return 2;
  }
  for (int i = 4; i < argc; ++i)
    if (!dlopen(argv[i], RTLD_NOW)) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 2;
    }
  try {
    torch::inductor::AOTIModelPackageLoader model(argv[1]);
    write_tensors(argv[3], model.run(read_tensors(argv[2])));
  } catch (const c10::Error &error) {
    std::fprintf(stderr, "failed: %s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return 1;
  }
}
