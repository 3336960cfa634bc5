/** Writer of MessagePack for the messages of the tests: text, numbers, booleans, null, arrays and plain objects. */

/** Memory for one message; grows when a message needs more. */
let memory = Buffer.allocUnsafeSlow(128 * 1024);
let at = 0;

/** A message with the prefix `M:`. The bytes are valid until the next call. */
export function encodeMessagePack(message: object): Uint8Array {
  for (;;) {
    at = 0;
    try {
      byte(0x4d);
      byte(0x3a);
      value(message);
      return memory.subarray(0, at);
    } catch (error) {
      if (!(error instanceof NoRoom)) throw error;
      memory = Buffer.allocUnsafeSlow(memory.length * 2);
    }
  }
}

class NoRoom extends Error {}

function room(bytes: number): void {
  if (at + bytes > memory.length) throw new NoRoom();
}

function byte(code: number): void {
  memory[at] = code;
  at += 1;
}

function value(one: unknown): void {
  room(9);
  if (typeof one === "string") text(one);
  else if (typeof one === "number") number(one);
  else if (one === null || one === undefined) byte(0xc0);
  else if (typeof one === "boolean") byte(one ? 0xc3 : 0xc2);
  else if (Array.isArray(one)) {
    header(one.length, 0x90, 0xdc);
    for (const item of one) value(item);
  } else if (typeof one === "object") {
    const names = Object.keys(one);
    header(names.length, 0x80, 0xde);
    for (const name of names) {
      text(name);
      value((one as Record<string, unknown>)[name]);
    }
  } else {
    throw new TypeError(`MessagePack has no ${typeof one}`);
  }
}

function text(one: string): void {
  const most = one.length * 3;
  room(most + 5);
  // The size of the header depends on the number of bytes, which is mostly that of the characters.
  const guess = textHeaderBytes(one.length);
  const written = memory.write(one, at + guess, "utf8");
  const needed = textHeaderBytes(written);
  if (needed !== guess) memory.copyWithin(at + needed, at + guess, at + guess + written);
  if (needed === 1) byte(0xa0 | written);
  else if (needed === 2) {
    byte(0xd9);
    byte(written);
  } else if (needed === 3) {
    byte(0xda);
    at = memory.writeUInt16BE(written, at);
  } else {
    byte(0xdb);
    at = memory.writeUInt32BE(written, at);
  }
  at += written;
}

function textHeaderBytes(length: number): number {
  if (length < 32) return 1;
  if (length < 256) return 2;
  return length < 65_536 ? 3 : 5;
}

function header(count: number, short: number, long: number): void {
  room(3);
  if (count < 16) byte(short | count);
  else {
    byte(long);
    at = memory.writeUInt16BE(count, at);
  }
}

function number(one: number): void {
  if (!Number.isInteger(one) || Math.abs(one) > Number.MAX_SAFE_INTEGER) {
    byte(0xcb);
    at = memory.writeDoubleBE(one, at);
  } else if (one >= 0) unsigned(one);
  else if (one >= -32) byte(one & 0xff);
  else {
    byte(0xd3);
    at = memory.writeBigInt64BE(BigInt(one), at);
  }
}

function unsigned(one: number): void {
  if (one < 128) byte(one);
  else if (one < 256) {
    byte(0xcc);
    byte(one);
  } else if (one < 65_536) {
    byte(0xcd);
    at = memory.writeUInt16BE(one, at);
  } else if (one < 2 ** 32) {
    byte(0xce);
    at = memory.writeUInt32BE(one, at);
  } else {
    byte(0xcf);
    at = memory.writeUInt32BE(Math.floor(one / 2 ** 32), at);
    at = memory.writeUInt32BE(one >>> 0, at);
  }
}
