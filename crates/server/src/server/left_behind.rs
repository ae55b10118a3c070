//! Unix sockets that a server left behind: a file stays when its process is killed.

use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Removes the socket at `path`, where there is one, and nobody has it. A server keeps its own, from before it listens
/// on it: a second one with the same path would cut its clients off, and is told that the address is in use when it
/// binds.
///
/// # Errors
/// If the file can't be removed.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match is_socket(path) && is_nobodys(path)? {
        true => fs::remove_file(path),
        false => Ok(()),
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Streams are refused by one that does not listen yet, too. For datagrams it is of the wrong type then, and refused
/// is what nobody has.
fn is_nobodys(path: &Path) -> io::Result<bool> {
    Ok(is_refused(path, Type::STREAM)? && is_refused(path, Type::DGRAM)?)
}

/// A full backlog is no refusal.
fn is_refused(path: &Path, kind: Type) -> io::Result<bool> {
    let client = Socket::new(Domain::UNIX, kind, None)?;
    client.set_nonblocking(true)?;
    let answer = client.connect(&SockAddr::unix(path)?);
    Ok(answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_socket_stays_that_is_not_listened_on_yet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        for kind in [Type::STREAM, Type::DGRAM, Type::SEQPACKET] {
            let starting = Socket::new(Domain::UNIX, kind, None).unwrap();
            starting.bind(&SockAddr::unix(&path).unwrap()).unwrap();
            remove(&path).unwrap();
            assert!(path.exists(), "{kind:?}");
            drop(starting);
            remove(&path).unwrap();
            assert!(!path.exists(), "{kind:?}");
        }
    }

    #[test]
    fn only_a_socket_that_nobody_listens_on_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        remove(&path).unwrap();
        let server = UnixListener::bind(&path).unwrap();
        remove(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(server);
        assert!(path.exists());
        remove(&path).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        remove(&path).unwrap();
        assert!(path.exists());
    }
}
