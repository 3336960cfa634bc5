// What native code gives React Native's JavaScript. `nativeModules` is the program's that runs the bundle.
globalThis.RN$Bridgeless = true;
globalThis.nativeModuleProxy = {};
globalThis.__turboModuleProxy = (name) => {
  if (name === "PlatformConstants") {
    const version = { major: 0, minor: 81, patch: 6 };
    return { getConstants: () => ({ reactNativeVersion: version, isTesting: true, osVersion: "18" }) };
  }
  return globalThis.nativeModules?.[name] ?? null;
};
