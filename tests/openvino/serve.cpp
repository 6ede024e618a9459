// Runs a model with a native library, without Python: `serve EXTENSION MODEL ROWS COLUMNS` reads ROWS x COLUMNS floats
// from stdin, in their own bytes, and prints what the model makes of them.
#include <exception>
#include <iostream>
#include <string>

#include <openvino/openvino.hpp>

int main(int count, char **words) {
  if (count != 5) {
    std::cerr << "usage: serve EXTENSION MODEL ROWS COLUMNS < FLOATS\n";
    return 2;
  }
  try {
    ov::Core core;
    core.add_extension(words[1]);
    ov::InferRequest request = core.compile_model(words[2], "CPU").create_infer_request();
    ov::Tensor input(ov::element::f32, {std::stoul(words[3]), std::stoul(words[4])});
    std::cin.read(static_cast<char *>(input.data()), static_cast<std::streamsize>(input.get_byte_size()));
    request.set_input_tensor(input);
    request.infer();
    const ov::Tensor output = request.get_output_tensor();
    for (size_t i = 0; i < output.get_size(); ++i)
      std::cout << output.data<const float>()[i] << '\n';
  } catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
