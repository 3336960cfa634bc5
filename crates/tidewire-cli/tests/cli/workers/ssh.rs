//! Debian's SSH server on a port of the loopback interface.

use super::support::wait_for;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// An SSH server that ends with this value.
pub(super) struct Ssh {
    server: Child,
    /// The command that reaches it.
    pub(super) command: String,
}

impl Ssh {
    pub(super) fn start(folder: &Path) -> Self {
        let path = |name: &str| folder.join(name).display().to_string();
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &path(name)])
                .status();
            assert!(made.unwrap().success());
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        fs::copy(path("user.pub"), path("authorized")).unwrap();
        let settings = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nMaxStartups 50\n",
            path("host"),
            path("authorized")
        );
        fs::write(path("sshd_config"), settings).unwrap();
        // It needs this folder for the separation of its privileges.
        let _ = fs::create_dir_all("/run/sshd");
        let server = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f", &path("sshd_config")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(path("sshd.log")).unwrap())
            .spawn()
            .unwrap();
        wait_for(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        let command = format!(
            "ssh -p {port} -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR 127.0.0.1",
            path("user")
        );
        Self { server, command }
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
