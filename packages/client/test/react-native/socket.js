// A session over React Native's own WebSocket. `report` is the program's that runs the bundle.
import "./platform";
import { connect, open } from "@tidewire/client";
import { msgpack } from "@tidewire/client/msgpack";
import RCTDeviceEventEmitter from "react-native/Libraries/EventEmitter/RCTDeviceEventEmitter";
import WebSocket from "react-native/Libraries/WebSocket/WebSocket";

globalThis.WebSocket = WebSocket;
globalThis.emitNative = (name, event) => RCTDeviceEventEmitter.emit(name, event);

async function session(options) {
  const errors = [];
  const on = { error: (error) => errors.push(String(error)) };
  const client = await connect(globalThis.address, { ...options, on }).connected();
  const subscription = await client.subscribe("room").ready();
  const received = new Promise((resolve) => subscription.on("message", resolve));
  const long = "Grüße 𝄞".repeat(5_000);
  await client.publish("room", { long });
  const isWhole = (await received).payload.long === long;
  await client.ready();
  await client.close();
  return { isWhole, errors, state: client.state };
}

async function main() {
  const refused = await open(globalThis.address.replace("/ws", "/elsewhere")).catch(({ code }) => code);
  return { json: await session({}), msgpack: await session({ format: msgpack() }), refused };
}

main().then(report, (error) => report(`failed: ${error.code} ${error.stack}`));
