// Bundles programs of this folder by Metro, as a project of React Native has it; `name=entry` each, beside the folder for them.
const { mkdirSync } = require("node:fs");
const { resolve } = require("node:path");
const Metro = require("metro");

const [out, ...names] = process.argv.slice(2);
const client = resolve(__dirname, "../..");

mkdirSync(out, { recursive: true });
(async () => {
  const config = await Metro.loadConfig(
    { cwd: __dirname },
    {
      projectRoot: __dirname,
      watchFolders: [client],
      maxWorkers: 1,
      cacheStores: [],
      reporter: { update() {} },
      resolver: {
        useWatchman: false,
        // The packages are linked and not installed, so that Metro has to be told where they lie.
        extraNodeModules: { "@tidewire/client": client },
        nodeModulesPaths: [resolve(__dirname, "node_modules")],
        unstable_conditionNames: ["react-native"],
      },
      serializer: { getPolyfills: () => [] },
      transformer: { babelTransformerPath: require.resolve("./transformer.cjs") },
    },
  );
  for (const name of names) {
    await Metro.runBuild(config, {
      entry: resolve(__dirname, `${name}.js`),
      out: resolve(out, `${name}.js`),
      platform: "ios",
      dev: false,
      minify: false,
    });
  }
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
