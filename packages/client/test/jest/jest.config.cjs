// What an application has, apart from where the packages lie: they are linked, and not installed.
module.exports = {
  testEnvironment: "jsdom",
  testMatch: ["**/*.test.cjs"],
  transform: {},
  watchman: false,
  testTimeout: 60_000,
};
