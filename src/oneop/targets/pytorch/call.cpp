// The Python side of the runtime: `NativeCall`, a callable that takes an operator's arguments to the dispatcher without
// going through Python code, and the hooks for runtime.cpp.
//
// A NativeCall serves the plain case: tensors and attributes of exactly the expected types. Everything else (subclasses,
// __torch_function__ modes, tracing, symbolic numbers, wrong arguments) goes to a Python function given at creation, so
// that semantics and messages stand in one place.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/TracerMode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/python_variable.h>

#include "hooks.h"

namespace {

using at::IValue;
using at::Tensor;
using torch::jit::Stack;

// ---- Hooks -----------------------------------------------------------------------------------------------------------

PyObject *call_error = nullptr;                                         // oneop.errors.CallError
PyObject *prepare_function = nullptr, *prepare_cuda_function = nullptr; // from an operator's name
PyObject *push_function = nullptr, *pop_function = nullptr, *wrap_function = nullptr, *unwrap_function = nullptr;

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
};

[[noreturn]] void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

[[noreturn]] void fail(const char *message) {
  const Gil gil;
  // A kernel's message may be anything.
  PyObject *text = PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::strlen(message)), "replace");
  if (text)
    PyErr_SetObject(call_error, text);
  Py_XDECREF(text);
  throw_python_error();
}

void call_with_name(PyObject *function, const char *name) {
  const Gil gil;
  PyObject *result = PyObject_CallFunction(function, "s", name);
  if (!result)
    throw_python_error();
  Py_DECREF(result);
}

void prepare(const char *name) { call_with_name(prepare_function, name); }
void prepare_cuda(const char *name) { call_with_name(prepare_cuda_function, name); }

int64_t push_level() {
  const Gil gil;
  PyObject *result = PyObject_CallNoArgs(push_function);
  if (!result)
    throw_python_error();
  const int64_t level = PyLong_AsLongLong(result);
  Py_DECREF(result);
  return level;
}

void pop_level() {
  const Gil gil;
  PyObject *result = PyObject_CallNoArgs(pop_function);
  if (!result)
    PyErr_WriteUnraisable(pop_function); // called while another exception may be under way
  Py_XDECREF(result);
}

Tensor with_level(PyObject *function, const Tensor &tensor, int64_t level) {
  const Gil gil;
  PyObject *object = THPVariable_Wrap(tensor);
  if (!object)
    throw_python_error();
  PyObject *result = PyObject_CallFunction(function, "NL", object, static_cast<long long>(level));
  if (!result)
    throw_python_error();
  Tensor found = THPVariable_Unpack(result);
  Py_DECREF(result);
  return found;
}

Tensor wrap_in_level(const Tensor &tensor, int64_t level) { return with_level(wrap_function, tensor, level); }
Tensor unwrap_from_level(const Tensor &tensor, int64_t level) { return with_level(unwrap_function, tensor, level); }

const oneop_torch_hooks hooks = {fail, prepare, prepare_cuda, push_level, pop_level, wrap_in_level, unwrap_from_level};

// ---- What a call is made of ------------------------------------------------------------------------------------------

enum class Arity : uint8_t { required, optional, variadic };
enum class Kind : uint8_t { real, integer, boolean, string, reals, integers, strings };

struct Parameter {
  PyObject *name = nullptr; // interned
  bool is_input = false;
  Arity arity = Arity::required; // of an input
  Kind kind = Kind::real;        // of an attribute
  bool admits_none = false;
  PyObject *choices = nullptr; // a tuple, or NULL
  std::optional<IValue> value; // the default
};

struct Signature {
  c10::OperatorHandle op;
  std::vector<Parameter> parameters; // inputs, then attributes: the order of the stack
  size_t inputs = 0;
  size_t outputs = 0;
  PyObject *fallback = nullptr;
  PyObject *output_type = nullptr; // a NamedTuple, or NULL
};

struct NativeCall {
  PyObject_HEAD vectorcallfunc vectorcall;
  Signature *signature;
  PyObject *dict;
};

// ---- Python to torch. `false` means: not the plain case. No Python error is set then. --------------------------------

bool take_tensor(PyObject *object, IValue &out) {
  if (!THPVariable_CheckExact(object))
    return false;
  out = THPVariable_Unpack(object);
  return true;
}

bool take_tensors(PyObject *object, IValue &out) {
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object))
    return false;
  PyObject **items = PySequence_Fast_ITEMS(object);
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
  c10::List<Tensor> list;
  list.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!THPVariable_CheckExact(items[i]))
      return false;
    list.push_back(THPVariable_Unpack(items[i]));
  }
  out = std::move(list);
  return true;
}

bool take(PyObject *object, double &out) {
  if (PyFloat_CheckExact(object)) {
    out = PyFloat_AS_DOUBLE(object);
    return true;
  }
  if (!PyLong_CheckExact(object))
    return false;
  out = PyLong_AsDouble(object);
  if (out != -1.0 || !PyErr_Occurred())
    return true;
  PyErr_Clear(); // too large: the fallback words it
  return false;
}

bool take(PyObject *object, int64_t &out) {
  if (!PyLong_CheckExact(object))
    return false;
  int overflow = 0;
  out = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

bool take(PyObject *object, std::string &out) {
  if (!PyUnicode_CheckExact(object))
    return false;
  Py_ssize_t size = 0;
  const char *data = PyUnicode_AsUTF8AndSize(object, &size);
  if (!data) {
    PyErr_Clear(); // lone surrogates: the fallback words it
    return false;
  }
  out.assign(data, static_cast<size_t>(size));
  return true;
}

template <class T> bool take_list(PyObject *object, IValue &out) {
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object))
    return false;
  PyObject **items = PySequence_Fast_ITEMS(object);
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
  c10::List<T> list;
  list.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    T item{};
    if (!take(items[i], item))
      return false;
    list.push_back(std::move(item));
  }
  out = std::move(list);
  return true;
}

template <class T> bool take_one(PyObject *object, IValue &out) {
  T value{};
  if (!take(object, value))
    return false;
  out = std::move(value);
  return true;
}

bool is_choice(const Parameter &parameter, PyObject *object) {
  if (!parameter.choices)
    return true;
  const int found = PySequence_Contains(parameter.choices, object);
  if (found < 0)
    PyErr_Clear();
  return found == 1;
}

bool take_attribute(const Parameter &parameter, PyObject *object, IValue &out) {
  if (object == Py_None)
    return parameter.admits_none;
  if (!is_choice(parameter, object))
    return false;
  switch (parameter.kind) {
  case Kind::real:
    return take_one<double>(object, out);
  case Kind::integer:
    return take_one<int64_t>(object, out);
  case Kind::string:
    return take_one<std::string>(object, out);
  case Kind::reals:
    return take_list<double>(object, out);
  case Kind::integers:
    return take_list<int64_t>(object, out);
  case Kind::strings:
    return take_list<std::string>(object, out);
  case Kind::boolean:
    if (!PyBool_Check(object))
      return false;
    out = object == Py_True;
    return true;
  }
  return false;
}

bool take_parameter(const Parameter &parameter, PyObject *object, IValue &out) {
  if (!parameter.is_input)
    return take_attribute(parameter, object, out);
  if (parameter.arity == Arity::variadic)
    return take_tensors(object, out);
  if (object == Py_None)
    return parameter.arity == Arity::optional;
  return take_tensor(object, out);
}

// Interned names are nearly always the same object; a name that was built at run time is compared in full.
const Parameter *find(const Signature &self, PyObject *name) {
  for (const auto &parameter : self.parameters)
    if (parameter.name == name)
      return &parameter;
  for (const auto &parameter : self.parameters) {
    const int equal = PyObject_RichCompareBool(parameter.name, name, Py_EQ);
    if (equal == 1)
      return &parameter;
    if (equal < 0)
      PyErr_Clear();
  }
  return nullptr;
}

bool is_plain_context() { return !at::impl::torch_function_mode_enabled() && !at::tracer::impl::is_dispatch_enabled(); }

constexpr size_t most_parameters = 64;

bool fill(const Signature &self, PyObject *const *arguments, size_t count, PyObject *names, Stack &stack) {
  const size_t size = self.parameters.size();
  if (count > self.inputs || size > most_parameters || !is_plain_context())
    return false;
  stack.resize(size);
  uint64_t given = 0;
  for (size_t i = 0; i < count; ++i)
    if (!take_parameter(self.parameters[i], arguments[i], stack[i]))
      return false;
  given = count == 0 ? 0 : ~uint64_t{0} >> (64 - count);
  const auto keywords = names ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0;
  for (size_t i = 0; i < keywords; ++i) {
    const auto *parameter = find(self, PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)));
    if (!parameter)
      return false;
    const auto index = static_cast<size_t>(parameter - self.parameters.data());
    const uint64_t bit = uint64_t{1} << index;
    if ((given & bit) || !take_parameter(*parameter, arguments[count + i], stack[index]))
      return false;
    given |= bit;
  }
  for (size_t i = count; i < size; ++i) {
    if (given >> i & 1)
      continue;
    if (!self.parameters[i].value)
      return false;
    stack[i] = *self.parameters[i].value;
  }
  return true;
}

// ---- torch to Python -------------------------------------------------------------------------------------------------

PyObject *wrap(IValue &&value) {
  if (value.isTensor())
    return THPVariable_Wrap(std::move(value).toTensor());
  auto items = value.toListRef();
  PyObject *list = PyList_New(static_cast<Py_ssize_t>(items.size()));
  for (size_t i = 0; list && i < items.size(); ++i) {
    PyObject *item = THPVariable_Wrap(items[i].toTensor());
    if (!item)
      Py_CLEAR(list);
    else
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
  }
  return list;
}

PyObject *wrap_outputs(const Signature &self, Stack &stack) {
  if (stack.size() == 1 && !self.output_type)
    return wrap(std::move(stack[0]));
  PyObject *tuple = PyTuple_New(static_cast<Py_ssize_t>(stack.size()));
  for (size_t i = 0; tuple && i < stack.size(); ++i) {
    PyObject *item = wrap(std::move(stack[i]));
    if (!item)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), item);
  }
  if (!tuple || !self.output_type)
    return tuple;
  PyObject *result = PyObject_Call(self.output_type, tuple, nullptr);
  Py_DECREF(tuple);
  return result;
}

struct Released {
  PyThreadState *state = PyEval_SaveThread();
  ~Released() { PyEval_RestoreThread(state); }
};

PyObject *native_call(PyObject *callable, PyObject *const *arguments, size_t count_and_flag, PyObject *names) {
  const auto &self = *reinterpret_cast<NativeCall *>(callable)->signature;
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(count_and_flag));
  try {
    Stack stack;
    if (!fill(self, arguments, count, names, stack))
      return PyObject_Vectorcall(self.fallback, arguments, count_and_flag & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
    {
      const Released released;
      self.op.callBoxed(stack);
    }
    return wrap_outputs(self, stack);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

// ---- The type --------------------------------------------------------------------------------------------------------

void release(Signature *self) {
  for (auto &parameter : self->parameters) {
    Py_XDECREF(parameter.name);
    Py_XDECREF(parameter.choices);
  }
  Py_XDECREF(self->fallback);
  Py_XDECREF(self->output_type);
  delete self;
}

void deallocate(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  auto *call = reinterpret_cast<NativeCall *>(object);
  if (call->signature)
    release(call->signature);
  Py_XDECREF(call->dict);
  type->tp_free(object);
  Py_DECREF(type);
}

int traverse(PyObject *object, visitproc visit, void *arg) {
  auto *call = reinterpret_cast<NativeCall *>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(call->dict);
  if (call->signature) {
    Py_VISIT(call->signature->fallback);
    Py_VISIT(call->signature->output_type);
  }
  return 0;
}

int clear(PyObject *object) {
  auto *call = reinterpret_cast<NativeCall *>(object);
  Py_CLEAR(call->dict);
  return 0;
}

PyObject *describe(PyObject *object) {
  const auto &self = *reinterpret_cast<NativeCall *>(object)->signature;
  return PyUnicode_FromFormat("<native call of %s>", self.op.operator_name().name.c_str());
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(NativeCall, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(NativeCall, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void *>(deallocate)},
    {Py_tp_traverse, reinterpret_cast<void *>(traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(clear)},
    {Py_tp_repr, reinterpret_cast<void *>(describe)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec specification = {
    "oneop.targets.pytorch.NativeCall", sizeof(NativeCall), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyObject *native_call_type = nullptr;

// ---- Creation (once an operator) -------------------------------------------------------------------------------------

// A row of `parameters`: (name, arity of an input or kind of an attribute, admits None, choices or None, (default,) or ()).
bool read_parameter(PyObject *row, size_t index, size_t inputs, Parameter &out) {
  PyObject *name = nullptr, *choices = nullptr, *value = nullptr;
  int code = 0, admits_none = 0;
  if (!PyArg_ParseTuple(row, "UipOO!", &name, &code, &admits_none, &choices, &PyTuple_Type, &value))
    return false;
  out.name = Py_NewRef(name);
  PyUnicode_InternInPlace(&out.name);
  out.is_input = index < inputs;
  if (out.is_input)
    out.arity = static_cast<Arity>(code);
  else
    out.kind = static_cast<Kind>(code);
  out.admits_none = admits_none != 0;
  if (choices != Py_None)
    out.choices = Py_NewRef(choices);
  if (PyTuple_GET_SIZE(value) == 0)
    return true;
  out.value.emplace();
  if (take_parameter(out, PyTuple_GET_ITEM(value, 0), *out.value))
    return true;
  PyErr_Format(PyExc_TypeError, "the default of %R is not of its kind", name);
  return false;
}

// create(name, parameters, number of inputs, fallback, output type or None) -> NativeCall
PyObject *create(PyObject *, PyObject *arguments) {
  const char *name = nullptr;
  PyObject *parameters = nullptr, *fallback = nullptr, *output_type = nullptr;
  Py_ssize_t inputs = 0;
  if (!PyArg_ParseTuple(arguments, "sO!nOO", &name, &PyTuple_Type, &parameters, &inputs, &fallback, &output_type))
    return nullptr;
  try {
    auto *self = new Signature{c10::Dispatcher::singleton().findSchemaOrThrow(name, ""),
                               {},
                               static_cast<size_t>(inputs),
                               0,
                               Py_NewRef(fallback),
                               output_type == Py_None ? nullptr : Py_NewRef(output_type)};
    const auto size = static_cast<size_t>(PyTuple_GET_SIZE(parameters));
    self->parameters.resize(size);
    for (size_t i = 0; i < size; ++i)
      if (!read_parameter(PyTuple_GET_ITEM(parameters, static_cast<Py_ssize_t>(i)), i, self->inputs,
                          self->parameters[i])) {
        release(self);
        return nullptr;
      }
    auto *type = reinterpret_cast<PyTypeObject *>(native_call_type);
    PyObject *object = type->tp_alloc(type, 0);
    if (!object) {
      release(self);
      return nullptr;
    }
    auto *call = reinterpret_cast<NativeCall *>(object);
    call->vectorcall = native_call;
    call->signature = self;
    return object;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

// hooks(CallError, prepare, prepare CUDA, push, pop, wrap, unwrap) -> the address of the hooks
PyObject *make_hooks(PyObject *, PyObject *arguments) {
  if (!PyArg_ParseTuple(arguments, "OOOOOOO", &call_error, &prepare_function, &prepare_cuda_function, &push_function,
                        &pop_function, &wrap_function, &unwrap_function))
    return nullptr;
  for (PyObject *object : {call_error, prepare_function, prepare_cuda_function, push_function, pop_function,
                           wrap_function, unwrap_function})
    Py_INCREF(object);
  return PyLong_FromVoidPtr(const_cast<oneop_torch_hooks *>(&hooks));
}

PyMethodDef functions[] = {
    {"create", create, METH_VARARGS, nullptr},
    {"hooks", make_hooks, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "oneop_torch_call", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit_oneop_torch_call() {
  native_call_type = PyType_FromSpec(&specification);
  return native_call_type ? PyModule_Create(&module) : nullptr;
}
