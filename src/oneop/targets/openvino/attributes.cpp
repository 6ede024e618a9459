// attributes.cpp: the values of attributes, as JSON and as kernels see them. C++17.
#include "adapter.h"

#include <cmath>
#include <cstdio>
#include <locale>
#include <sstream>

namespace oneop_openvino {
namespace {

// ---- Writing ------------------------------------------------------------------------------------------------------

std::string text_of(double value) {
  if (std::isnan(value))
    return "NaN";
  if (std::isinf(value))
    return value > 0 ? "Infinity" : "-Infinity";
  std::ostringstream out;
  out.imbue(std::locale::classic()); // whatever the program has set
  out.precision(17);
  out << value;
  return out.str();
}

std::string text_of(std::int64_t value) { return std::to_string(value); }

std::string text_of(const std::string &value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

template <class T> std::string text_of(const std::vector<T> &values) {
  std::string out = "[";
  for (const T &value : values)
    out += (out.size() > 1 ? ", " : "") + text_of(value);
  return out + "]";
}

// ---- Reading ------------------------------------------------------------------------------------------------------

// Goes through a text from left to right. Every reader returns false where the text is something else.
class Reader {
public:
  explicit Reader(const std::string &text) : text_(text) {}

  bool at_end() {
    skip_spaces();
    return at_ == text_.size();
  }

  bool read(double &out) {
    const std::string word = next_word();
    if (word == "NaN" || word == "Infinity" || word == "-Infinity") {
      out = word == "NaN" ? std::nan("") : word[0] == '-' ? -HUGE_VAL : HUGE_VAL;
      return true;
    }
    std::istringstream in(word);
    in.imbue(std::locale::classic());
    return (in >> out) && in.peek() == std::istringstream::traits_type::eof();
  }

  bool read(std::int64_t &out) {
    const std::string word = next_word();
    std::istringstream in(word);
    in.imbue(std::locale::classic());
    return (in >> out) && in.peek() == std::istringstream::traits_type::eof();
  }

  bool read(bool &out) {
    const std::string word = next_word();
    out = word == "true";
    return out || word == "false";
  }

  bool read(std::string &out) {
    out.clear();
    if (!take('"'))
      return false;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] != '\\')
        out += text_[at_++];
      else if (!read_escape(out))
        return false;
    }
    return at_ < text_.size() && text_[at_++] == '"';
  }

  template <class T> bool read(std::vector<T> &out) {
    out.clear();
    if (!take('['))
      return false;
    if (take(']'))
      return true;
    do {
      T item{};
      if (!read(item))
        return false;
      out.push_back(std::move(item));
    } while (take(','));
    return take(']');
  }

private:
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  bool take(char wanted) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != wanted)
      return false;
    ++at_;
    return true;
  }

  std::string next_word() {
    skip_spaces();
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != ']' && text_[at_] != ' ')
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // What text_of(std::string) and Python's json write: \" \\ \n and the like, and \uXXXX below 256 for bytes that XML
  // cannot hold; anything else stands as it is.
  bool read_escape(std::string &out) {
    static const std::string plain = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    if (++at_ == text_.size())
      return false;
    if (text_[at_] != 'u') {
      const std::size_t found = plain.find(text_[at_++]);
      if (found != std::string::npos)
        out += meant[found];
      return found != std::string::npos;
    }
    unsigned code = 0;
    const std::string digits = text_.substr(at_ + 1, 4);
    std::istringstream in(digits);
    in.imbue(std::locale::classic());
    if (digits.size() != 4 || !(in >> std::hex >> code) || code >= 0x80)
      return false;
    at_ += 5;
    out += static_cast<char>(code);
    return true;
  }

  const std::string &text_;
  std::size_t at_ = 0;
};

template <class T> bool read_all(const std::string &text, T &out) {
  Reader reader(text);
  return reader.read(out) && reader.at_end();
}

template <class T> Value read_as(const std::string &text) {
  T value{};
  return read_all(text, value) ? Value(std::move(value)) : Value(Unset{});
}

oneop_string view_of(const std::string &value) { return {value.data(), static_cast<std::int64_t>(value.size())}; }

} // namespace

std::string write_value(const Value &value) {
  struct Writer {
    std::string operator()(Unset) const { return ""; }
    std::string operator()(Null) const { return "null"; }
    std::string operator()(bool truth) const { return truth ? "true" : "false"; }
    std::string operator()(double number) const { return text_of(number); }
    std::string operator()(std::int64_t number) const { return text_of(number); }
    std::string operator()(const std::string &word) const { return text_of(word); }
    std::string operator()(const std::vector<double> &list) const { return text_of(list); }
    std::string operator()(const std::vector<std::int64_t> &list) const { return text_of(list); }
    std::string operator()(const std::vector<std::string> &list) const { return text_of(list); }
  };
  return std::visit(Writer{}, value);
}

Value read_value(const AttributeRow &attribute, const std::string &text) {
  if (attribute.optional && text == "null")
    return Null{};
  switch (attribute.kind) {
  case ONEOP_FLOAT:
    return read_as<double>(text);
  case ONEOP_INT:
    return read_as<std::int64_t>(text);
  case ONEOP_BOOL:
    return read_as<bool>(text);
  case ONEOP_STRING:
    return read_as<std::string>(text);
  case ONEOP_FLOATS:
    return read_as<std::vector<double>>(text);
  case ONEOP_INTS:
    return read_as<std::vector<std::int64_t>>(text);
  case ONEOP_STRINGS:
    return read_as<std::vector<std::string>>(text);
  case ONEOP_NONE:
    break;
  }
  return Unset{};
}

std::string write_integers(const std::vector<std::int64_t> &values) { return text_of(values); }
bool read_integers(const std::string &text, std::vector<std::int64_t> &out) { return read_all(text, out); }
std::string write_strings(const std::vector<std::string> &values) { return text_of(values); }
bool read_strings(const std::string &text, std::vector<std::string> &out) { return read_all(text, out); }

const char *kind_text(oneop_attribute_kind kind) {
  static const char *const texts[] = {"nothing",  "a float",          "an int",         "a bool",
                                      "a string", "a list of floats", "a list of ints", "a list of strings"};
  return texts[kind];
}

AttributeViews::AttributeViews(const std::vector<Value> &values) : views_(values.size() + 1), strings_(values.size()) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    oneop_attribute &view = views_[i];
    view.kind = ONEOP_NONE;
    if (const auto *number = std::get_if<double>(&values[i])) {
      view.kind = ONEOP_FLOAT;
      view.value.f = *number;
    } else if (const auto *integer = std::get_if<std::int64_t>(&values[i])) {
      view.kind = ONEOP_INT;
      view.value.i = *integer;
    } else if (const auto *truth = std::get_if<bool>(&values[i])) {
      view.kind = ONEOP_BOOL;
      view.value.i = *truth ? 1 : 0;
    } else if (const auto *word = std::get_if<std::string>(&values[i])) {
      view.kind = ONEOP_STRING;
      view.value.s = view_of(*word);
    } else if (const auto *numbers = std::get_if<std::vector<double>>(&values[i])) {
      view.kind = ONEOP_FLOATS;
      view.value.fs = {numbers->data(), static_cast<std::int64_t>(numbers->size())};
    } else if (const auto *integers = std::get_if<std::vector<std::int64_t>>(&values[i])) {
      view.kind = ONEOP_INTS;
      view.value.is = {integers->data(), static_cast<std::int64_t>(integers->size())};
    } else if (const auto *words = std::get_if<std::vector<std::string>>(&values[i])) {
      for (const std::string &item : *words)
        strings_[i].push_back(view_of(item));
      view.kind = ONEOP_STRINGS;
      view.value.ss = {strings_[i].data(), static_cast<std::int64_t>(strings_[i].size())};
    }
  }
}

} // namespace oneop_openvino
