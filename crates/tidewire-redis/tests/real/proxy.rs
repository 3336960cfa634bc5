//! A proxy on a Unix socket that cuts connections, or swallows what the server answers.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ends with the process of the test.
pub(crate) struct Proxy {
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    swallows: AtomicBool,
    refuses: AtomicBool,
    open: Mutex<Vec<UnixStream>>,
}

impl Proxy {
    pub(crate) fn start(server: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let listener = UnixListener::bind(folder.path().join("proxy")).expect("a socket");
        let shared = Arc::new(Shared::default());
        let (server, inner) = (server.to_owned(), Arc::clone(&shared));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if !inner.refuses.load(Ordering::SeqCst) {
                    inner.connect(client, &server);
                }
            }
        });
        Self { folder, shared }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("proxy")
    }

    /// Messages of the server on the present connections do not arrive any more.
    pub(crate) fn swallow_answers(&self) {
        self.shared.swallows.store(true, Ordering::SeqCst);
    }

    /// Ends all connections. New ones work.
    pub(crate) fn cut(&self) {
        let mut open = self
            .shared
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.shared.swallows.store(false, Ordering::SeqCst);
        for socket in open.drain(..) {
            // It may have ended by itself.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Ends new connections at once.
    pub(crate) fn refuse(&self) {
        self.shared.refuses.store(true, Ordering::SeqCst);
    }

    pub(crate) fn accept(&self) {
        self.cut();
        self.shared.refuses.store(false, Ordering::SeqCst);
    }
}

impl Shared {
    fn connect(self: &Arc<Self>, client: UnixStream, server: &Path) {
        let Ok(server) = UnixStream::connect(server) else {
            return;
        };
        let (Ok(from), Ok(to)) = (server.try_clone(), client.try_clone()) else {
            return;
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // A cut that came meanwhile has not seen it.
        if self.refuses.load(Ordering::SeqCst) {
            return;
        }
        open.extend(
            [client.try_clone(), server.try_clone()]
                .into_iter()
                .flatten(),
        );
        drop(open);
        let shared = Arc::clone(self);
        std::thread::spawn(move || pump(client, server, || false));
        std::thread::spawn(move || pump(from, to, || shared.swallows.load(Ordering::SeqCst)));
    }
}

fn pump(mut from: UnixStream, mut to: UnixStream, swallows: impl Fn() -> bool) {
    let mut bytes = [0; 65_536];
    while let Ok(length) = from.read(&mut bytes) {
        if length == 0 || (!swallows() && to.write_all(&bytes[..length]).is_err()) {
            break;
        }
    }
    // The other side sees the end as well.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
