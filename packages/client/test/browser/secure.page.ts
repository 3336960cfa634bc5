/** What a page finds of the platform. */
Object.assign(globalThis, {
  found: () => ({ locks: "locks" in navigator, subtle: crypto.subtle !== undefined }),
});
