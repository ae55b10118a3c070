//! Binary requests that are no matter of one key.

use super::connection::{Connection, Mode, Stop};
use super::context::Context;
use crate::auth::sasl::{MECHANISMS, Step};
use crate::commands::binary::admin;
use terrace_protocol::binary::{Refused, Response, Sasl, Status};
use terrace_protocol::{BinaryCommand, BinaryRequest, Request};

impl Connection {
    /// Whether a request decides what may be executed behind it; or may not be executed itself.
    pub(super) fn is_login(&self, request: &Request<'_>) -> bool {
        match request {
            Request::Binary(request) => {
                matches!(request.command, BinaryCommand::Sasl(_)) || !self.sasl.admits(request)
            }
            _ => false,
        }
    }

    /// Executes a request that names no record, or refuses one of a client that has not said who it
    /// is.
    pub(super) fn process_unkeyed_binary(
        &mut self,
        request: &BinaryRequest<'_>,
        cx: &mut Context,
    ) -> Result<(), Stop> {
        if !self.sasl.admits(request) {
            self.replies.append(|out| request.echo.put_error(out, Status::AuthError));
            self.is_closing = true;
            return Ok(());
        }
        match &request.command {
            BinaryCommand::Refused(refused) => self.refuse_binary(request, refused),
            BinaryCommand::SaslMechanisms => self.tell_mechanisms(request, cx),
            BinaryCommand::Sasl(sasl) => self.log_in(request, sasl, cx)?,
            BinaryCommand::Noop => {
                self.replies.append(|out| request.echo.put(out, &Response::default()));
            }
            _ => {
                return self
                    .process_admin(cx, |executor, out| admin::execute(executor, request, out));
            }
        }
        Ok(())
    }

    fn refuse_binary(&mut self, request: &BinaryRequest<'_>, refused: &Refused) {
        self.replies.append(|out| request.echo.put_error(out, refused.status));
        self.is_closing |= refused.close;
        if refused.swallow > 0 {
            self.mode = Mode::Swallow(refused.swallow.into());
        }
    }

    fn tell_mechanisms(&mut self, request: &BinaryRequest<'_>, cx: &Context) {
        self.replies.append(|out| match cx.shared.passwords {
            Some(_) => {
                let response = Response { value: MECHANISMS.as_bytes(), ..Response::default() };
                request.echo.put(out, &response);
            }
            None => request.echo.put_error(out, Status::Unknown),
        });
    }

    fn log_in(
        &mut self,
        request: &BinaryRequest<'_>,
        sasl: &Sasl<'_>,
        cx: &Context,
    ) -> Result<(), Stop> {
        let before = self.sasl;
        let (status, value) = match self.sasl.step(sasl, cx.shared.passwords.as_ref()) {
            Step::Unknown => (Status::Unknown, Status::Unknown.text()),
            Step::Continue => (Status::AuthContinue, ""),
            Step::Admitted => {
                self.note_admission(cx);
                (Status::Ok, "Authenticated")
            }
            Step::Failed => {
                // It is judged again as if nothing had been.
                self.note_failure(cx).inspect_err(|_| self.sasl = before)?;
                (Status::AuthError, Status::AuthError.text())
            }
        };
        let response = Response { value: value.as_bytes(), ..Response::default() };
        self.replies.append(|out| request.echo.put_with(out, status, &response));
        Ok(())
    }
}
