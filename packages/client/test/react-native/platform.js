// What React Native gives every program beside the JavaScript of Hermes, with its own code where that is JavaScript. There
// is neither `crypto` nor `TextDecoder`, and a page's `document` and `addEventListener` are missing on the global `window`.
import { AbortController, AbortSignal } from "abort-controller/dist/abort-controller";
import "./native";
import { URL, URLSearchParams } from "react-native/Libraries/Blob/URL";

globalThis.window = globalThis;
globalThis.queueMicrotask ??= (call) => void Promise.resolve().then(call);
Object.assign(globalThis, { AbortController, AbortSignal, URL, URLSearchParams });
globalThis.performance ??= { now: () => Date.now() };
