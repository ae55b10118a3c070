//! The thread that keeps a remote drive connected.

use crate::admin;
use crate::association::{Association, Associations, KEEP_ALIVE};
use crate::error::ConnectError;
use crate::lock::lock;
use crate::owner::Refusal;
use crate::session::Session;
use crate::shared::{Request, Shared, State};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_nvme::command::features::AsyncEvent;
use tracing::{info, warn};

/// Between two Keep Alives; one that was not answered by the next ends the session.
const BEAT: Duration = Duration::from_secs(3);
/// Pauses between attempts to connect: from the first, doubling, to the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long the old controller is asked to shut down.
const FAREWELL: Duration = Duration::from_secs(1);

/// Keeps a drive connected until it is closed.
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) associations: Associations,
}

impl Keeper {
    /// The life of the thread, beginning with the association that the drive was opened with.
    pub(crate) fn run(mut self, first: Association) {
        let mut association = first;
        loop {
            let ended = self.serve(&mut association);
            if self.shared.is_closing() {
                return self.close(association);
            }
            let why = match &ended {
                Err(error) => error.to_string(),
                Ok(()) => association.session.why(),
            };
            let session = Arc::clone(&association.session);
            session.end(|| why.clone());
            if let Err(error) = &ended
                && error.is_final()
            {
                return self.give_up(error);
            }
            if matches!(self.shared.state(), State::Gone(_)) {
                return;
            }
            let lost = Instant::now();
            self.shared.set_state(State::Down(lost));
            warn!("tier {}: lost the connection: {why}", self.shared.label);
            let fence = fence(association, &session);
            match self.reconnect() {
                Ok(Some(next)) => association = next,
                Ok(None) => return,
                Err(error) => return self.give_up(&error),
            }
            // With a reservation the old controller can't write any more.
            if association.claim.is_none() {
                *lock(&association.session.writes_from) = fence;
            }
            let seconds = lost.elapsed().as_secs_f64();
            info!("tier {}: connected again after {seconds:.1} s", self.shared.label);
            self.shared.set_state(State::Up(Arc::clone(&association.session)));
        }
    }

    /// The drive is lost for this server.
    fn give_up(&self, error: &ConnectError) {
        warn!("tier {}: given up: {error}", self.shared.label);
        self.shared.give_up(error.to_string());
        self.answer_requests(None);
    }

    /// Looks after an association until it ends: because of an error, or as its session says.
    fn serve(&mut self, association: &mut Association) -> Result<(), ConnectError> {
        let mut next_beat = Instant::now() + BEAT;
        loop {
            self.shared.quiet();
            if self.shared.is_closing() || association.session.is_over() {
                return Ok(());
            }
            self.answer_requests(Some(&association.session));
            for event in association.admin.events()? {
                self.heed(event, association)?;
            }
            if Instant::now() >= next_beat {
                if !association.admin.beat()? {
                    let silent = format!("the target has not answered for {} s", BEAT.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, silent).into());
                }
                next_beat = Instant::now() + BEAT;
            }
            let left = next_beat.saturating_duration_since(Instant::now());
            association.admin.wait(left, Some(self.shared.bell()))?;
        }
    }

    fn heed(
        &mut self,
        event: AsyncEvent,
        association: &mut Association,
    ) -> Result<(), ConnectError> {
        match event {
            AsyncEvent::Namespaces => self.associations.look_again(association),
            AsyncEvent::Reservation => {
                let Some(claim) = &association.claim else { return Ok(()) };
                let mut lane = association.session.open_queue(1)?;
                match claim.is_held(&mut lane, &admin::within(KEEP_ALIVE)) {
                    Ok(true) => {
                        association.session.add_lane(lane);
                        Ok(())
                    }
                    Ok(false) => Err(ConnectError::Changed("another host has taken it".into())),
                    Err(Refusal::Failed(error)) => Err(error),
                    Err(_) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Connects queues for workers that asked for one.
    fn answer_requests(&self, session: Option<&Arc<Session>>) {
        for Request { depth, answer } in self.shared.take_requests() {
            answer.put(match session {
                Some(session) => match session.open_queue(depth) {
                    Ok(lane) => Ok((lane.into_wire(), Arc::clone(session))),
                    Err(error) => {
                        // A target that gives no queue may do so with another association.
                        session.end(|| error.to_string());
                        Err(io::ErrorKind::ConnectionAborted.into())
                    }
                },
                None => Err(io::ErrorKind::NotConnected.into()),
            });
        }
    }

    /// Connects again, however long it takes. `None` if the drive is closed meanwhile.
    fn reconnect(&mut self) -> Result<Option<Association>, ConnectError> {
        let mut pause = BACK_OFF.0;
        let mut last = String::new();
        loop {
            self.answer_requests(None);
            match self.associations.begin(&|_| false) {
                Ok(association) => return Ok(Some(association)),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => {
                    let error = error.to_string();
                    if error != last {
                        warn!("tier {}: connecting again: {error}", self.shared.label);
                        last = error;
                    }
                }
            }
            let end = Instant::now() + pause;
            while Instant::now() < end {
                if self.shared.is_closing() {
                    return Ok(None);
                }
                self.answer_requests(None);
                std::thread::sleep(BACK_OFF.0.min(end.saturating_duration_since(Instant::now())));
            }
            pause = (pause * 2).min(BACK_OFF.1);
        }
    }

    fn close(&mut self, mut association: Association) {
        let label = &self.shared.label;
        if let Err(error) = self.associations.end(&mut association) {
            warn!("tier {label}: could not be given back to the target: {error}");
        }
        association.session.end(|| "closed".to_owned());
        self.answer_requests(None);
    }
}

/// Until when writes of an association that ended may land; `None` if all were confirmed. The target gives a controller up
/// that it has not heard of for the keep-alive timeout. One that says that it is shut down says nothing of writes that it has
/// begun: Linux answers without waiting for them.
fn fence(mut association: Association, session: &Session) -> Option<Instant> {
    // So that it need not keep the controller for as long.
    let _ = association.admin.shut_down(&admin::within(FAREWELL));
    Some(session.unconfirmed()? + 2 * KEEP_ALIVE)
}
