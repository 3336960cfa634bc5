// Chromium as the client of `tidewire serve`. CHROMIUM is the browser's path.

import assert from 'node:assert/strict'
import { accessSync, constants } from 'node:fs'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { after, before, describe, test } from 'node:test'
import { chromium } from 'playwright-core'

import { echo } from './tidewire.js'

const places = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
const executablePath = process.env.CHROMIUM ?? places.find(isExecutable)
const skip = executablePath ? false : 'no Chromium here; CHROMIUM says where one is'

describe('Chromium', { skip }, () => {
  let browser, pages, page, origin

  before(async () => {
    browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
    pages = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<p>page'))
    pages.listen(0, '127.0.0.1')
    await once(pages, 'listening')
    origin = `http://127.0.0.1:${pages.address().port}`
    page = await browser.newPage()
    await page.goto(origin)
  })

  after(async () => {
    await browser?.close()
    pages?.close()
  })

  for (const mode of ['off', 'shared', 'per-connection']) {
    test(`messages, deflate ${mode}`, async (t) => {
      const url = await echo(t, mode, '--origin', origin)
      const result = await page.evaluate(exchange, url)
      assert.equal(result.protocol, 'chat')
      assert.equal(result.extensions.startsWith('permessage-deflate'), mode !== 'off')
      assert.deepEqual(result.different, [])
      assert.equal(result.echoes, 13)
      assert.deepEqual(result.closed, { code: 3001, wasClean: true })
    })
  }

  test('a page of another origin is refused', async (t) => {
    const url = await echo(t, 'off', '--origin', 'https://app.example.com')
    assert.deepEqual(await page.evaluate(attempt, url), { opened: false, code: 1006 })
  })
})

/** Runs in the page: sends each message, compares its echo, and closes. */
async function exchange(url) {
  const socket = new WebSocket(url, ['chat', 'other'])
  socket.binaryType = 'arraybuffer'
  const next = (type) => new Promise((resolve) => socket.addEventListener(type, resolve, { once: true }))
  await next('open')
  const bytes = (size) => Uint8Array.from({ length: size }, (_, at) => at * 31 + (at >> 8) * 7)
  const texts = ['', 'größe €\u{1f30a}', 'x'.repeat(125), 'x'.repeat(126), 'é'.repeat(40_000), 'abcdefgh'.repeat(1 << 20)]
  const binaries = [0, 1, 65_535, 65_536, 8 << 20].map((size) => bytes(size).buffer)
  const blobs = [3, 100_000].map((size) => new Blob([bytes(size)]))
  const different = []
  let echoes = 0
  for (const message of [...texts, ...binaries, ...blobs]) {
    const received = next('message')
    socket.send(message)
    const { data } = await received
    echoes += 1
    const sent = message instanceof Blob ? await message.arrayBuffer() : message
    const same = typeof sent === 'string'
      ? data === sent
      : data.byteLength === sent.byteLength
        && new Uint8Array(data).every((byte, at) => byte === new Uint8Array(sent)[at])
    if (!same) different.push(`message ${echoes}`)
  }
  const closed = next('close')
  socket.close(3001, 'done')
  const { code, wasClean } = await closed
  return { protocol: socket.protocol, extensions: socket.extensions, echoes, different, closed: { code, wasClean } }
}

/** Runs in the page: whether a connection can be opened, and how it ended if not. */
function attempt(url) {
  return new Promise((resolve) => {
    const socket = new WebSocket(url)
    socket.addEventListener('open', () => resolve({ opened: true }))
    socket.addEventListener('close', ({ code }) => resolve({ opened: false, code }))
  })
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
