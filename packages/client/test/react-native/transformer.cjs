// The transformation that React Native's preset makes.
const { transformSync } = require("@babel/core");
const preset = require("@react-native/babel-preset");

exports.transform = ({ src, filename, options }) => {
  const { ast, metadata } = transformSync(src, {
    filename,
    ast: true,
    code: false,
    babelrc: false,
    configFile: false,
    caller: { name: "metro", bundler: "metro", platform: options.platform },
    presets: [preset],
    sourceType: "unambiguous",
  });
  return { ast, metadata };
};
