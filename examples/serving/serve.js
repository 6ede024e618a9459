// Serves an ONNX model whose operators oneop defined, in Node.js: node serve.js MODEL < numbers
//
// Reads a matrix, one row a line, and prints the model's first output, one row a line. onnxruntime-node has no call that
// loads a library of operators: the functions in the file run.
const { readFileSync } = require("node:fs");
const ort = require("onnxruntime-node");

async function main(model) {
  const rows = readFileSync(0, "utf8").trim().split("\n").map((line) => line.trim().split(/\s+/).map(Number));
  const session = await ort.InferenceSession.create(model);
  const input = new ort.Tensor("float32", Float32Array.from(rows.flat()), [rows.length, rows[0].length]);
  const outputs = await session.run({ [session.inputNames[0]]: input });
  const { data, dims } = outputs[session.outputNames[0]];
  const columns = dims[dims.length - 1];
  for (let at = 0; at < data.length; at += columns) console.log(Array.from(data.slice(at, at + columns)).join(" "));
}

main(process.argv[2]).catch((error) => {
  console.error(`serve: ${error.message}`);
  process.exitCode = 1;
});
