//! The Unix socket of a listener: who may connect, and what a process left behind.

use std::fmt;
use std::fs::Permissions;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Connections that the kernel keeps until dwell takes them.
const BACKLOG: u32 = 1_024;

/// What a mode looks like, for errors.
pub const MODE_ACCEPTED: &str = "\"0600\" for the user of dwell, or \"0660\" for its group too";

/// Who may connect to a socket. Who may write to it may.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SocketMode(u32);

impl SocketMode {
    /// The user that dwell runs as, and nobody else.
    pub const PRIVATE: SocketMode = SocketMode(0o600);

    /// Reads a mode, four octal digits. The user of dwell can connect, others than its group cannot.
    pub fn parse(text: &str) -> std::result::Result<SocketMode, String> {
        let octal =
            text.len() == 4 && text.starts_with('0') && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        if !octal {
            return Err("is not four octal digits in quotes, the first a 0".to_owned());
        }
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode & 0o007 != 0 => Err("lets everybody on this machine in".to_owned()),
            Ok(mode) if mode & 0o600 != 0o600 => Err("keeps the user of dwell out".to_owned()),
            Ok(mode) => Ok(SocketMode(mode)),
            Err(_) => Err("is not a number".to_owned()),
        }
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Debug for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SocketMode({self})")
    }
}

/// Listens on a socket, in the place of one that is stale.
pub(super) async fn listen(path: &Path, SocketMode(mode): SocketMode) -> Result<UnixListener> {
    remove_stale(path).await?;
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    // Between bind and listen nobody can connect, so the mode is in force before the first client.
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)
}

/// Removes the socket of a listener that is gone.
pub(super) fn remove(path: &Path) -> Result<()> {
    std::fs::remove_file(path)
}

/// Removes a socket on which nobody listens any more; anything else stays, and binding says so.
async fn remove_stale(path: &Path) -> Result<()> {
    match tokio::fs::symlink_metadata(path).await {
        Ok(file) if file.file_type().is_socket() => {}
        _ => return Ok(()),
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => tokio::fs::remove_file(path).await,
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn a_mode_is_octal_and_for_the_user_and_perhaps_the_group() {
        for text in ["0600", "0660", "0640", "0700", "0770"] {
            assert_eq!(SocketMode::parse(text).map(|mode| mode.to_string()), Ok(text.to_owned()));
        }
        // 432 is what a file says that has 0o660 without quotes.
        for text in ["", "600", "432", "0o660", "0666", "0602", "0601", "0060", "0400", "4600", "00600", "0680", "+600"]
        {
            assert!(SocketMode::parse(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_socket_has_its_mode_and_only_a_stale_one_is_replaced() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("dwell.sock");
        let mode = || std::fs::metadata(&path).map(|file| file.permissions().mode() & 0o777);
        let first = listen(&path, SocketMode::PRIVATE).await?;
        assert_eq!(mode()?, 0o600);
        let second = listen(&path, SocketMode::PRIVATE).await;
        assert_eq!(second.err().map(|error| error.kind()), Some(ErrorKind::AddrInUse));
        // What a process leaves behind that was killed.
        drop(first);
        assert!(path.exists());
        drop(listen(&path, SocketMode(0o660)).await?);
        assert_eq!(mode()?, 0o660);

        std::fs::remove_file(&path)?;
        std::fs::write(&path, "not a socket")?;
        assert!(listen(&path, SocketMode::PRIVATE).await.is_err());
        assert_eq!(std::fs::read_to_string(&path)?, "not a socket");
        Ok(())
    }
}
