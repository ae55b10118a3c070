//! The flags of `terrace tiers`.

use crate::settings::AdminAddress;
use clap::{Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;

const AFTER: &str = "\
Changes need the token of the server's --admin-token-file.

Examples:
  terrace tiers status
  terrace tiers add ssd:/data/new:512g
  terrace tiers drain /data/old --wait && terrace tiers remove /data/old
  terrace tiers status --admin 127.0.0.1:11212 --admin-token-file /etc/terrace.token";

/// Shows the tiers of a running server, adds tiers, and takes tiers out of use while it runs.
#[derive(Parser)]
#[command(name = "terrace tiers", disable_help_subcommand = true, after_help = AFTER)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) server: ServerArguments,
    #[command(subcommand)]
    pub(super) action: Action,
}

/// Which server, and what it is shown.
#[derive(Args)]
#[command(next_help_heading = "Server")]
pub(super) struct ServerArguments {
    /// Admin port of the server, or the path of its Unix socket (default: as its settings have it).
    #[arg(long, global = true, value_name = "ADDR:PORT", value_parser = AdminAddress::parse)]
    pub(super) admin: Option<AdminAddress>,
    /// File with the token that the admin port asks for (default: as the settings have it).
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) admin_token_file: Option<PathBuf>,
    /// Settings of the server (default: /etc/terrace.toml, unless --admin is given).
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) config: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(super) enum Action {
    /// Shows what each tier is doing and holds, and how far drains are.
    Status {
        /// Write JSON, as `GET /tiers` of the admin port has it.
        #[arg(long)]
        json: bool,
    },
    /// Adds a drive as a tier, beside those of the last level. It stays one until the server restarts: name it in the
    /// settings, too.
    Add {
        /// The tier as --tier names it, such as ssd:/data/new:512g.
        #[arg(value_name = "TIER")]
        tier: String,
        /// Overwrite what the drive holds of an earlier tier.
        #[arg(long)]
        yes: bool,
    },
    /// Moves the records of a tier to other tiers. It takes no new ones until that is cancelled or the server restarts.
    Drain {
        /// Number of the tier, or its path.
        #[arg(value_name = "N|PATH")]
        tier: String,
        /// Drop the oldest records where no other tier has room.
        #[arg(long)]
        force: bool,
        /// Wait until the tier is empty, and show how far the drain is; it goes on if this program is ended.
        #[arg(long)]
        wait: bool,
    },
    /// Cancels the drain of a tier, which takes new records again.
    Cancel {
        /// Number of the tier, or its path.
        #[arg(value_name = "N|PATH")]
        tier: String,
    },
    /// Takes an empty tier out of the set; from then on the server does not use its drive.
    Remove {
        /// Number of the tier, or its path.
        #[arg(value_name = "N|PATH")]
        tier: String,
        /// Remove it with the records that it holds, which are lost.
        #[arg(long)]
        yes: bool,
    },
}
