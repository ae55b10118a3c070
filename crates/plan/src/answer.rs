//! From flags to an answer: inputs with where each comes from, the plan, and what there is to say besides.

use crate::flags::{
    Arguments, BETA, Choice, DRIVE, DRIVES, FULL_PERCENT, GET_SHARE, KEY_BYTES, MEMORY_BYTES,
    NETWORK_BITS, PER_SECOND, Part,
};
use crate::proposal::Proposal;
use crate::show::{bytes, count};
use crate::source::Running;
use crate::{
    Data, Drive, LeastMemory, Load, Node, Plan, PlanError, Popularity, Prices, TierSize, Trace,
};
use serde_json::{Value, json};
use terrace_cache::{RECORD_BYTES_REFUSED, RECORD_BYTES_WARNED};

const MIB: f64 = (1_u64 << 20) as f64;
/// Rows of the table of `-m`.
const ROWS_MAX: usize = 8;
/// Its columns, as in docs/guide/size.md.
pub(crate) const RECORD_BYTES: [u64; 4] = [RECORD_BYTES_REFUSED, 1024, RECORD_BYTES_WARNED, 100];
const DEFAULT: &str = "default";

/// One input.
pub(crate) struct Assumption {
    pub(crate) name: &'static str,
    /// What people call it.
    pub(crate) label: &'static str,
    pub(crate) value: Value,
    pub(crate) text: String,
    /// The flag, file or server that said so, or [`DEFAULT`].
    pub(crate) from: String,
}

/// All that `terrace plan` prints.
pub(crate) struct Answer {
    pub(crate) assumptions: Vec<Assumption>,
    pub(crate) plan: Plan,
    pub(crate) proposal: Proposal,
    pub(crate) sizes: Sizes,
    pub(crate) warnings: Vec<String>,
}

/// The least `-m` by tiers and records.
pub(crate) struct Sizes {
    /// What one of the records that are planned for takes of a tier.
    pub(crate) record_bytes: u64,
    /// The tiers that are proposed stand first.
    pub(crate) rows: Vec<SizesRow>,
}

/// The least `-m` of a server with tiers of one size, in MiB.
pub(crate) struct SizesRow {
    pub(crate) tier_bytes: f64,
    /// With which records of each of [`RECORD_BYTES`] fill them.
    pub(crate) of: Vec<u64>,
    /// With which a server starts, and those that are planned for fill them.
    pub(crate) of_these: u64,
}

/// What was read besides flags.
struct Sources<'a> {
    flags: &'a Arguments,
    trace: Option<Trace>,
    running: Option<Running>,
    assumptions: Vec<Assumption>,
}

impl Arguments {
    pub(crate) fn answer(&self) -> Result<Answer, PlanError> {
        // First: a wrong name is answered with all classes, whatever else is missing.
        let drive = self.drive()?;
        let mut sources = Sources {
            flags: self,
            trace: self.trace.as_deref().map(Trace::read).transpose()?,
            running: self.server.as_deref().map(Running::ask).transpose()?,
            assumptions: Vec::new(),
        };
        let data = sources.data()?;
        let load = sources.load();
        let popularity = sources.popularity()?;
        let node = sources.node(drive);
        let prices = match (self.price_dram, self.price_drive, self.price_node) {
            (Some(dram_gib), Some(drive), Some(node)) => Some(Prices { dram_gib, drive, node }),
            _ => None,
        };
        let Sources { trace, running, assumptions, .. } = sources;
        let items = data.items;
        let hits = |share: f64| match &trace {
            Some(trace) => trace.hits(share * trace.bytes),
            None => popularity.hits(share, items),
        };
        let plan = Plan::new(&data, load, &node, prices, self.nodes, &hits)?;
        let memory = (node.memory_bytes / MIB) as u64;
        let mut warnings = running.map_or(Vec::new(), |running| {
            let is_load_said = self.gets.is_some() && self.sets.is_some()
                || self.rate.is_some() && self.get_percent.is_some();
            running.doubts(is_load_said, self.items.is_some())
        });
        warnings.extend(doubts(&plan, &data, memory));
        let proposal = Proposal::new(&plan, &data, self.tier_full, self.cores, &self.path);
        Ok(Answer { assumptions, proposal, sizes: Sizes::new(&plan, &data)?, warnings, plan })
    }

    fn drive(&self) -> Result<Drive, PlanError> {
        let drive = if self.drive.ends_with(".toml") {
            Drive::profile(&self.drive)?
        } else {
            Drive::class(&self.drive)?
        };
        let drive_writes_per_day = self.dwpd.or(drive.drive_writes_per_day);
        Ok(Drive { drive_writes_per_day, ..drive })
    }
}

impl Sources<'_> {
    fn assume(
        &mut self,
        [name, label]: [&'static str; 2],
        value: impl Into<Value>,
        text: impl Into<String>,
        from: &str,
    ) {
        let (value, text, from) = (value.into(), text.into(), from.to_owned());
        self.assumptions.push(Assumption { name, label, value, text, from });
    }

    /// Where inputs come from that no flag says.
    fn elsewhere(&self) -> String {
        let Self { running, flags, .. } = self;
        let address = running.as_ref().map(|running| running.address.clone());
        address.or(flags.trace.clone()).unwrap_or_default()
    }

    fn data(&mut self) -> Result<Data, PlanError> {
        let (flags, elsewhere) = (self.flags, self.elsewhere());
        let (trace, running) = (self.trace.as_ref(), self.running.as_ref());
        let key_bytes = flags.key_bytes.unwrap_or(KEY_BYTES);
        let payload = trace
            .map(|trace| trace.bytes / trace.objects)
            .or(running.and_then(|running| running.payload_bytes));
        let held = running.map(|running| running.items).filter(|items| *items > 0.0);
        let items = flags.items.or(trace.map(|trace| trace.objects)).or(held);
        let value = flags.value_bytes.or(payload.map(|payload| (payload - key_bytes).max(0.0)));
        let (Some(items), Some(value_bytes)) = (items, value) else {
            return Err(PlanError::Input(match running {
                Some(running) => format!(
                    "--server {}: it holds no items yet; ask again when it does, or add --items and --value-bytes",
                    running.address
                ),
                None => {
                    "say what is cached: --items and --value-bytes, --trace, or --server".into()
                }
            }));
        };
        let from = |is_flag: bool, flag: &'static str| if is_flag { flag } else { &elsewhere };
        self.assume(
            ["items", "records"],
            items,
            count(items),
            from(flags.items.is_some(), "--items"),
        );
        let key_from = if flags.key_bytes.is_some() { "--key-bytes" } else { DEFAULT };
        self.assume(["key_bytes", "key"], key_bytes, bytes(key_bytes), key_from);
        let value_from = from(flags.value_bytes.is_some(), "--value-bytes");
        self.assume(["value_bytes", "value"], value_bytes, bytes(value_bytes), value_from);
        let ttl_from = if flags.ttl.is_some() { "--ttl" } else { DEFAULT };
        let ttl = flags.ttl.map_or("none".into(), crate::show::time);
        self.assume(["ttl_seconds", "time to live"], flags.ttl, ttl, ttl_from);
        let flags_from = if flags.client_flags { "--client-flags" } else { DEFAULT };
        let told = if flags.client_flags { "set" } else { "not set" };
        self.assume(["client_flags", "client flags"], flags.client_flags, told, flags_from);
        let (ttl_seconds, client_flags) = (flags.ttl, flags.client_flags);
        Ok(Data { items, key_bytes, value_bytes, ttl_seconds, client_flags })
    }

    fn load(&mut self) -> Load {
        let flags = self.flags;
        let told = self.running.as_ref();
        let mean = told.map(|r| format!("{}, mean of {}", r.address, crate::show::time(r.uptime)));
        let mean = mean.unwrap_or_default();
        let known = told.and_then(|r| Some((r.per_second()?, r.get_share()?)));
        let are_sets_said =
            flags.sets.is_some() || flags.rate.is_some() && flags.get_percent.is_some();
        let is_usual = are_sets_said || known.is_none() || told.is_some_and(Running::is_usual);
        let (load, from) = if flags.gets.is_some() || flags.sets.is_some() {
            let (known_gets, known_sets) =
                known.map_or((0.0, 0.0), |(all, gets)| (all * gets, all * (1.0 - gets)));
            let gets = flags.gets.unwrap_or(known_gets);
            let all = gets + flags.sets.unwrap_or(known_sets);
            let get_share = if all > 0.0 { gets / all } else { 1.0 };
            let from = match (flags.gets, flags.sets) {
                (Some(_), Some(_)) => "--gets, --sets".to_owned(),
                (Some(_), None) if known.is_some() => format!("--gets; {mean}"),
                (None, _) if known.is_some() => format!("--sets; {mean}"),
                (Some(_), None) => "--gets; no --sets".to_owned(),
                (None, _) => "--sets; no --gets".to_owned(),
            };
            (Load { per_second: all, get_share, is_usual }, [from.clone(), from])
        } else {
            let share = flags.get_percent;
            let per_second = flags.rate.or(known.map(|(all, _)| all));
            let get_share = share.or(known.map(|(_, gets)| gets));
            let from = |flag: Option<f64>, name: &str| match (flag, known) {
                (Some(_), _) => name.to_owned(),
                (None, Some(_)) => mean.clone(),
                (None, None) => DEFAULT.to_owned(),
            };
            let load = Load {
                per_second: per_second.unwrap_or(PER_SECOND),
                get_share: get_share.unwrap_or(GET_SHARE),
                is_usual,
            };
            (load, [from(flags.rate, "--rate"), from(share, "--get-percent")])
        };
        let Load { per_second, get_share, .. } = load;
        let rate = format!("{}/s", count(per_second));
        self.assume(["requests_per_second", "requests"], per_second, rate, &from[0]);
        let share = format!("{:.1} % of them", get_share * 100.0);
        self.assume(["get_share", "reads"], get_share, share, &from[1]);
        load
    }

    fn popularity(&mut self) -> Result<Popularity, PlanError> {
        let flags = self.flags;
        let choice = flags.popularity.unwrap_or(Choice::ZipfMandelbrot);
        let popularity = match choice {
            Choice::Uniform => Popularity::Uniform,
            Choice::Zipf => Popularity::Zipf(flags.exponent.unwrap_or(1.0)),
            Choice::ZipfMandelbrot => Popularity::ZipfMandelbrot {
                s: flags.exponent.unwrap_or(2.5),
                beta: flags.beta.unwrap_or(BETA),
            },
        };
        if let Popularity::ZipfMandelbrot { s, beta } = popularity
            && (s <= 1.0 || beta <= 0.0)
        {
            let text = "zipf-mandelbrot needs an --exponent above 1 and a --beta above 0";
            return Err(PlanError::Input(text.into()));
        }
        if self.trace.is_some() {
            let (from, value) = (self.elsewhere(), json!({ "kind": "trace" }));
            self.assume(
                ["popularity", "popularity"],
                value,
                "least recently used, as the trace has it",
                &from,
            );
            return Ok(popularity);
        }
        let (value, text) = match popularity {
            Popularity::Uniform => (json!({ "kind": "uniform" }), "all records alike".to_owned()),
            Popularity::Zipf(s) => (json!({ "kind": "zipf", "s": s }), format!("Zipf, s {s}")),
            Popularity::ZipfMandelbrot { s, beta } => (
                json!({ "kind": "zipf-mandelbrot", "s": s, "beta": beta }),
                format!("Zipf-Mandelbrot, s {s}, beta {beta}"),
            ),
        };
        let given = [
            (flags.popularity.is_some(), "--popularity"),
            (flags.exponent.is_some(), "--exponent"),
            (flags.beta.is_some(), "--beta"),
        ];
        let given: Vec<_> = given.iter().filter(|(is, _)| *is).map(|(_, flag)| *flag).collect();
        let from = if given.is_empty() { DEFAULT.to_owned() } else { given.join(", ") };
        self.assume(["popularity", "popularity"], value, text, &from);
        Ok(popularity)
    }

    fn node(&mut self, drive: Drive) -> Node {
        let flags = self.flags;
        let told = self.running.as_ref().and_then(|running| running.memory_bytes);
        let (memory_bytes, from) = match (flags.dram, flags.memory_limit, told) {
            (Some(dram), ..) => (dram, "--dram".to_owned()),
            (_, Some(limit), _) => (limit, "-m".to_owned()),
            (.., Some(told)) => (told, format!("{}, limit_maxbytes", self.elsewhere())),
            _ => (MEMORY_BYTES, DEFAULT.to_owned()),
        };
        self.assume(
            ["memory_bytes", "DRAM per node (-m)"],
            memory_bytes,
            bytes(memory_bytes),
            &from,
        );
        let from = if flags.drive == DRIVE { DEFAULT } else { "--drive" };
        self.assume(["drive", "drive"], drive_as_json(&drive), drive_as_text(&drive), from);
        let (drives, from) = match (flags.drives, flags.path.len()) {
            (Some(drives), _) => (drives as usize, "--drives"),
            (None, 0) => (DRIVES, DEFAULT),
            (None, paths) => (paths, "--path"),
        };
        self.assume(["drives", "drives per node"], drives, drives.to_string(), from);
        let (tier, text) = match flags.tier_size {
            None => (TierSize::Needed, "as much as the records need".to_owned()),
            Some(Part::All) => (TierSize::Whole, "all of each drive".to_owned()),
            Some(Part::Bytes(size)) => (TierSize::Bytes(size), bytes(size)),
        };
        let value = match tier {
            TierSize::Needed => json!("needed"),
            TierSize::Whole => json!("all"),
            TierSize::Bytes(size) => json!(size),
        };
        let from = if flags.tier_size.is_some() { "--tier-size" } else { DEFAULT };
        self.assume(["tier_size", "tier"], value, text, from);
        let full = flags.tier_full;
        let from = if full == FULL_PERCENT { DEFAULT } else { "--tier-full" };
        self.assume(["tier_full_percent", "tier is full at"], full, format!("{full} %"), from);
        let network_bits = flags.network.unwrap_or(NETWORK_BITS);
        let from = if flags.network.is_some() { "--network" } else { DEFAULT };
        let text = format!("{} Gbit/s", network_bits / 1e9);
        self.assume(["network_bits_per_second", "network per node"], network_bits, text, from);
        let from = if flags.cores == crate::flags::CORES { DEFAULT } else { "--cores" };
        self.assume(["cores", "cores per node"], flags.cores, flags.cores.to_string(), from);
        Node {
            memory_bytes,
            drive,
            drives: drives as f64,
            tier,
            network_bits,
            cores: f64::from(flags.cores),
            tier_full: f64::from(full) / 100.0,
        }
    }
}

fn drive_as_text(drive: &Drive) -> String {
    let life = drive.drive_writes_per_day.map_or("endurance unknown".into(), |per_day| {
        format!("{per_day} drive writes a day for {} years", drive.warranty_years)
    });
    format!(
        "{}: {}, {} reads/s, {}/s written, {life}",
        drive.name,
        bytes(drive.capacity_bytes),
        count(drive.read_iops),
        bytes(drive.write_bytes_per_second),
    )
}

fn drive_as_json(drive: &Drive) -> Value {
    json!({
        "name": drive.name,
        "capacity_bytes": drive.capacity_bytes,
        "read_iops": drive.read_iops,
        "read_us_p50": drive.read_us_p50,
        "read_us_p99": drive.read_us_p99,
        "write_bytes_per_second": drive.write_bytes_per_second,
        "drive_writes_per_day": drive.drive_writes_per_day,
        "warranty_years": drive.warranty_years,
    })
}

/// What an operator must know who does as the plan says.
fn doubts(plan: &Plan, data: &Data, memory: u64) -> Vec<String> {
    let mut doubts = Vec::new();
    let binding = plan.binding();
    if binding.used > 1.0 {
        doubts.push(format!(
            "{} with {:.0} is used to {:.0} % of what is planned; leave --nodes out to have as many as suffice",
            binding.name,
            plan.nodes,
            binding.used * 100.0,
        ));
    }
    if memory < plan.asked.fills {
        doubts.push(format!(
            "the server will warn at its start: with less than -m {} its index has no room for tiers full of records of \
             {} bytes; these are of {:.0}, and {} of them need -m {:.0}",
            plan.asked.fills,
            RECORD_BYTES_WARNED,
            data.payload_bytes(),
            count(plan.live_items / plan.nodes),
            (plan.least_memory_bytes / MIB).ceil(),
        ));
    }
    doubts
}

impl Sizes {
    /// Of the tier that is proposed, larger ones, and the whole drive.
    fn new(plan: &Plan, data: &Data) -> Result<Self, PlanError> {
        let (node, drive) = (&plan.node, plan.node.drive.capacity_bytes);
        let record_bytes = data.record_bytes().ceil() as u64;
        let larger = std::iter::successors(Some(plan.tier_bytes), |bytes| Some(bytes * 2.0));
        let larger = larger.take_while(|bytes| *bytes < drive).take(ROWS_MAX - 1);
        let row = |tier_bytes| {
            let least = |record_bytes| LeastMemory::full_of(record_bytes, tier_bytes, node);
            let starts = least(RECORD_BYTES_REFUSED)?;
            let of = RECORD_BYTES.into_iter().map(least).collect::<Result<_, PlanError>>()?;
            Ok(SizesRow { tier_bytes, of, of_these: least(record_bytes)?.max(starts) })
        };
        let rows = larger.chain([drive]).map(row).collect::<Result<_, PlanError>>()?;
        Ok(Self { record_bytes, rows })
    }
}
