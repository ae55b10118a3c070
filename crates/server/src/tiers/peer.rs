//! The server that is asked.

use super::arguments::ServerArguments;
use super::error::Error;
use super::request::ask;
use super::tier::Tier;
use crate::admin::Token;
use crate::settings::{AdminAddress, Settings};
use std::io;
use std::path::Path;
use terrace_cache::{DrainError, RemoveError};

/// The end of [`terrace_cache::JoinError::Used`].
const USED: &str = "was a tier before, and what it holds would be lost";
/// The settings of the service, as packages install them.
const SETTINGS: &str = "/etc/terrace.toml";

/// A server's admin port, and the token that it is shown.
pub(super) struct Peer {
    address: AdminAddress,
    token: Option<Token>,
}

impl Peer {
    /// The server that the flags name, or whose settings they name.
    pub(super) fn of(arguments: &ServerArguments) -> Result<Self, Error> {
        // The token in the settings is of no other server.
        let by_default = || arguments.admin.is_none().then_some(Path::new(SETTINGS));
        let file = arguments.config.as_deref().or_else(by_default);
        let is_given = arguments.config.is_some();
        let settings = match file {
            Some(file) if is_given || file.exists() => Some((file, Settings::admin_of(file)?)),
            _ => None,
        };
        let (address, token) = match &settings {
            Some((_, settings)) => (&settings.admin, &settings.admin_token_file),
            None => (&None, &None),
        };
        let address = arguments.admin.as_ref().or(address.as_ref());
        let address = address.ok_or_else(|| no_admin(settings.as_ref().map(|(file, _)| *file)))?;
        let token = match arguments.admin_token_file.as_ref().or(token.as_ref()) {
            Some(file) => Some(Token::read(file).map_err(|error| {
                let hint = match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "; run this as a user who may read it (sudo)"
                    }
                    _ => "",
                };
                Error::Usage(format!("token file {}: {error}{hint}", file.display()))
            })?),
            None => None,
        };
        Ok(Self { address: address.clone(), token })
    }

    /// The tiers as the server writes them.
    pub(super) fn json(&self) -> Result<String, Error> {
        self.ask("GET", "/tiers")
    }

    pub(super) fn tiers(&self) -> Result<Vec<Tier>, Error> {
        self.read(&self.json()?)
    }

    /// Asks for a change; returns the tiers after it.
    pub(super) fn change(&self, path: &str) -> Result<Vec<Tier>, Error> {
        self.read(&self.ask("POST", path)?)
    }

    fn read(&self, json: &str) -> Result<Vec<Tier>, Error> {
        serde_json::from_str(json).map_err(|error| {
            Error::NoAnswer(format!(
                "{}: not the answer of a server of this version: {error}",
                self.address()
            ))
        })
    }

    fn ask(&self, method: &str, path: &str) -> Result<String, Error> {
        let answer = ask(&self.address, method, path, self.token.as_ref());
        let (status, body) = answer.map_err(|error| self.unreachable(&error))?;
        let why = body.trim_end();
        Err(match status {
            200 => return Ok(body),
            401 if self.token.is_some() => Error::Refused(
                "the server has another token: give the file of its --admin-token-file; if that has changed since its \
                 start, restart it"
                    .to_owned(),
            ),
            401 => Error::Refused(
                "the server asks for a token: give the file of its --admin-token-file".to_owned(),
            ),
            403 if method == "POST" => Error::Refused(
                "the server has no token, and lets nothing be changed without one: start it with --admin-token-file \
                 FILE"
                    .to_owned(),
            ),
            404 if path == "/tiers" => Error::NoAnswer(format!(
                "{}: the server is of an older version, or is no terrace",
                self.address()
            )),
            400 | 404 | 409 => Error::Refused(format!("{why}{}", advice(why))),
            _ => Error::Refused(format!("{}: status {status}: {why}", self.address())),
        })
    }

    fn address(&self) -> String {
        match &self.address {
            AdminAddress::Tcp(address) => address.to_string(),
            AdminAddress::Unix(path) => path.display().to_string(),
        }
    }

    fn unreachable(&self, error: &io::Error) -> Error {
        let address = self.address();
        Error::NoAnswer(match error.kind() {
            // memcached's port closes the connection, and others speak something else.
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                format!("{address}: no HTTP there; give the port of the server's --admin")
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("{address}: the server does not answer")
            }
            _ => format!("{address}: {error}; is the server running, and its --admin there?"),
        })
    }
}

fn no_admin(settings: Option<&Path>) -> Error {
    Error::Usage(match settings {
        Some(file) => format!(
            "{}: no admin port there; write --admin ADDR:PORT if the server has one by its flags, else set admin and \
             admin-token-file, and restart it",
            file.display()
        ),
        None => format!(
            "which server? There is no {SETTINGS}; write --config FILE with its settings, or --admin ADDR:PORT"
        ),
    })
}

/// What can be done about a change that the server refuses, behind its reason.
fn advice(why: &str) -> &'static str {
    let is = |error: &dyn ToString| error.to_string() == why;
    if is(&DrainError::LastTier) {
        "; its records would have nowhere to go: add another tier first (terrace tiers add)"
    } else if is(&DrainError::Failed) {
        "; terrace tiers remove with --yes takes it out"
    } else if why.ends_with(USED) {
        "; write --yes to overwrite it"
    } else if is(&RemoveError::Recovering) {
        "; try again when `stats tiers` says recovery ready"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_cache::JoinError;

    #[test]
    fn last_tier_of_a_drain_and_of_a_removal_have_the_same_advice() {
        let [drain, remove] = [DrainError::LastTier.to_string(), RemoveError::LastTier.to_string()];
        assert!(advice(&drain).contains("another tier first"));
        assert_eq!(advice(&drain), advice(&remove));
        assert_eq!(advice(&RemoveError::Removed.to_string()), "");
        let used = JoinError::Used { label: "/data/old".to_owned() };
        assert!(advice(&used.to_string()).contains("--yes"));
    }
}
