// case.h: what the test host is to do, read from a text of words, a path the last of its line; and JSON, as far as the answer needs it.
#ifndef HOST_CASE_H
#define HOST_CASE_H

#include <NvInferRuntime.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace host {

// An attribute of a node, in the memory that TensorRT's ONNX parser makes for it.
struct Field {
  std::string name;
  nvinfer1::PluginFieldType type;
  int32_t length;
  std::vector<char> data;
};

struct Tensor {
  bool absent = false;
  nvinfer1::DataType type{};
  std::vector<int64_t> sizes;
  std::vector<char> data;
};

struct Case {
  std::string library, name, version, name_space, layer, folder;
  std::vector<Field> attributes;
  std::vector<Tensor> inputs;
  bool dynamic = false;     // sizes are not known while the engine is built
  bool keep_absent = true;  // an absent input has a place of its own among those that are handed over
  bool allocator = true;    // the context has one
  std::string drop, rename; // a serialised field that gets lost, or another name
  int unused = -1;          // an output that nobody uses: it has no memory
  std::string fingerprint;  // takes the place of the serialised one
  std::string stop;         // after which step
};

inline std::string word(std::istream &in) {
  std::string found;
  if (!(in >> found))
    throw std::runtime_error("the case ends too early");
  return found == "-" ? "" : found;
}

/* The rest of the line: a path may have spaces in it. */
inline std::string line(std::istream &in) {
  std::string found;
  if (!std::getline(in >> std::ws, found))
    throw std::runtime_error("the case ends too early");
  return found;
}

/* std::stof refuses what is too small for a normal number. */
inline float number(const std::string &text) {
  char *end = nullptr;
  const float found = std::strtof(text.c_str(), &end);
  if (text.empty() || *end != '\0')
    throw std::runtime_error("`" + text + "` is no number");
  return found;
}

inline std::string from_hex(const std::string &text) {
  std::string found;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    found.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return found;
}

template <class T> void append(std::vector<char> &data, T value) {
  const char *bytes = reinterpret_cast<const char *>(&value);
  data.insert(data.end(), bytes, bytes + sizeof value);
}

inline Field read_field(std::istream &in) {
  Field field{};
  field.name = word(in);
  const std::string kind = word(in);
  if (kind == "STRING") {
    const std::string text = from_hex(word(in));
    field.data.assign(text.begin(), text.end());
    field.data.push_back('\0');
    field.length = static_cast<int32_t>(field.data.size());
    field.type = nvinfer1::PluginFieldType::kCHAR;
    return field;
  }
  field.length = kind == "FLOATS" || kind == "INTS" ? std::stoi(word(in)) : 1;
  const bool floats = kind[0] == 'F';
  field.type = floats ? nvinfer1::PluginFieldType::kFLOAT32 : nvinfer1::PluginFieldType::kINT32;
  for (int32_t i = 0; i < field.length; ++i) {
    if (floats)
      append(field.data, number(word(in)));
    else // as the parser does: what needs more than 32 bits is cut off
      append(field.data, static_cast<int32_t>(std::stoll(word(in))));
  }
  return field;
}

inline std::vector<char> read_file(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error("there is no " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Tensor read_tensor(std::istream &in) {
  Tensor tensor;
  const std::string type = word(in);
  if (type == "absent") {
    tensor.absent = true;
    return tensor;
  }
  tensor.type = static_cast<nvinfer1::DataType>(std::stoi(type));
  const int count = std::stoi(word(in));
  for (int d = 0; d < count; ++d)
    tensor.sizes.push_back(std::stoll(word(in)));
  tensor.data = read_file(line(in));
  return tensor;
}

inline Case read_case(std::istream &in) {
  Case found;
  for (std::string what; in >> what;) {
    if (what == "library")
      found.library = line(in);
    else if (what == "creator")
      found.name = word(in), found.version = word(in), found.name_space = word(in);
    else if (what == "layer")
      found.layer = word(in);
    else if (what == "folder")
      found.folder = line(in);
    else if (what == "attribute")
      found.attributes.push_back(read_field(in));
    else if (what == "input")
      found.inputs.push_back(read_tensor(in));
    else if (what == "dynamic")
      found.dynamic = word(in) == "1";
    else if (what == "keep_absent")
      found.keep_absent = word(in) == "1";
    else if (what == "allocator")
      found.allocator = word(in) == "1";
    else if (what == "unused")
      found.unused = std::stoi(word(in));
    else if (what == "drop")
      found.drop = word(in);
    else if (what == "rename")
      found.rename = word(in);
    else if (what == "fingerprint")
      found.fingerprint = word(in);
    else if (what == "stop")
      found.stop = word(in);
    else
      throw std::runtime_error("the case says `" + what + "`");
  }
  return found;
}

inline std::string json(const std::string &text) {
  std::ostringstream out;
  out << '"';
  for (const char letter : text) {
    if (letter == '"' || letter == '\\')
      out << '\\' << letter;
    else if (static_cast<unsigned char>(letter) < 32)
      out << ' ';
    else
      out << letter;
  }
  out << '"';
  return out.str();
}

inline std::string json(bool value) { return value ? "true" : "false"; }
inline std::string json(int32_t value) { return std::to_string(value); }
inline std::string json(int64_t value) { return std::to_string(value); }
inline std::string json(std::size_t value) { return std::to_string(value); }

template <class T> std::string json(const std::vector<T> &values) {
  std::string out = "[";
  for (const T &value : values)
    out += (out.size() > 1 ? ", " : "") + json(value);
  return out + "]";
}

} // namespace host

#endif // HOST_CASE_H
