// The programs under test, started for a test and ended after it.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

export const messageBytesMax = 16 << 20

const raw = [
  ...['--protocol', 'raw', '--app', 'echo', '--no-auth', '--path', 'any'],
  ...['--message-bytes-max', `${messageBytesMax}`, '--outbox-bytes-max', `${4 * messageBytesMax}`],
]

/** The URL of an echo server that compresses as `deflate` says: off, shared or per-connection. */
export function echo(test, deflate, ...flags) {
  return serve(test, ...raw, '--deflate', deflate, '--compression-threshold-bytes', '0', ...flags)
}

/** The URL of `tidewire serve` with these flags; it ends with the test. */
export async function serve(test, ...flags) {
  const all = ['serve', '--listen', '127.0.0.1:0', '--log-level', 'error', ...flags]
  const server = spawn(process.env.TIDEWIRE, all, { stdio: ['ignore', 'pipe', 'inherit'] })
  test.after(() => server.kill())
  const [line] = await once(createInterface(server.stdout), 'line')
  return line.replace('listening on ', '')
}

/** The exit code and what went to standard error. */
export async function run(program, ...args) {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] })
  let errors = ''
  child.stderr.on('data', (data) => { errors += data })
  const [code] = await once(child, 'close')
  return { code, errors }
}

/** The result of `tidewire load` with these flags. */
export async function load(url, ...flags) {
  const child = spawn(process.env.TIDEWIRE, ['load', url, ...flags, '--json'], { stdio: ['ignore', 'pipe', 'pipe'] })
  let [output, errors] = ['', '']
  child.stdout.on('data', (data) => { output += data })
  child.stderr.on('data', (data) => { errors += data })
  await once(child, 'close')
  if (output === '') throw new Error(errors)
  const [result] = JSON.parse(output).results
  return { requests: {}, errors: {}, ...result }
}
