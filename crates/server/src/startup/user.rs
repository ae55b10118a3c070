//! The user to run as (`-u`).

use super::Failure;
use nix::unistd::{Uid, User, initgroups, setgid, setuid};
use std::ffi::CString;

/// Gives up root for `name`. Root must say for whom; for others `-u` has no meaning, as in
/// memcached. To be called before any other thread runs.
pub(crate) fn change(name: Option<&str>) -> Result<(), Failure> {
    if !Uid::current().is_root() && !Uid::effective().is_root() {
        return Ok(());
    }
    let Some(name) = name else {
        return Err(Failure::new(
            Failure::USAGE,
            "root must say whom to run as: write -u USER, or -u root to stay root",
        ));
    };
    let user = User::from_name(name).ok().flatten().ok_or_else(|| {
        Failure::new(Failure::NO_USER, format!("-u {name}: there is no such user"))
    })?;
    if user.uid.is_root() {
        return Ok(());
    }
    let groups = CString::new(name).map_err(|_| nix::Error::EINVAL);
    groups
        .and_then(|name| initgroups(&name, user.gid))
        .and_then(|()| setgid(user.gid))
        .and_then(|()| setuid(user.uid))
        .map_err(|error| Failure::system(format!("-u {name}: can't become that user: {error}")))
}
