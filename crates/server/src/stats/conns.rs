//! `stats conns`: who listens and who is connected, by descriptor.

use super::view::{View, write};

/// Writes the answer, without its end.
pub(crate) fn write_conns(out: &mut Vec<u8>, view: &View<'_>) {
    for (number, name) in view.shared.listeners.get().into_iter().flatten() {
        write(out, &format!("{number}:addr"), name);
        write(out, &format!("{number}:state"), "conn_listening");
        write(out, &format!("{number}:secs_since_last_cmd"), view.shared.clock.uptime());
    }
    for (number, client) in view.shared.clients.all() {
        write(out, &format!("{number}:addr"), &client.address);
        write(out, &format!("{number}:listen_addr"), &client.entry.name);
        write(out, &format!("{number}:state"), client.state());
        let silent = view.now.saturating_sub(client.last_active());
        write(out, &format!("{number}:secs_since_last_cmd"), silent);
        write(out, &format!("{number}:resps_waiting"), client.replies_waiting());
    }
}
