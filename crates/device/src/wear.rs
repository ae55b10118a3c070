//! What an NVMe drive says of its wear: how much it was written, and how much it wrote to its flash for
//! that.
//!
//! Read by ioctl from the namespace that a path lies on, which takes root. Where there is no such drive,
//! or it does not say, there is nothing: no figure is ever made up.

use crate::block_device::drive_of;
use rustix::ioctl::{Updater, ioctl, opcode};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Bytes of each of the log pages.
const LOG_BYTES: usize = 512;
/// "Data units" of the drive's own page are so many bytes.
const UNIT_BYTES: u128 = 512_000;
const GET_LOG_PAGE: u8 = 2;
const ALL_NAMESPACES: u32 = u32::MAX;
const SMART_PAGE: u8 = 0x02;
/// "SMART / health information extended" of the OCP Datacenter NVMe SSD specification.
const OCP_PAGE: u8 = 0xc0;
/// Ends the page of that specification, and tells it from what other makers have there.
const OCP_GUID: u128 = 0xafd5_14c9_7c6f_4f9c_a4f2_bfea_2810_afc5;
const OCP_GUID_AT: usize = 496;
const TIMEOUT_MS: u32 = 5_000;

/// Bytes and shares as a drive counts them over its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wear {
    /// The maker's estimate of the life that is used up, in percent; may pass 100, up to 255.
    pub used_percent: u8,
    /// Bytes that hosts wrote.
    pub host_bytes: u128,
    /// Bytes that the drive wrote to its flash, if it says so.
    pub media_bytes: Option<u128>,
}

impl Wear {
    /// Asks the drive that a file, partition or block device lies on; `None` if it is no NVMe drive, or there is
    /// more than one (RAID).
    ///
    /// # Errors
    /// The system refuses, mostly for want of rights.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        let name = drive_of(path)?.filter(|name| name.starts_with("nvme"));
        let Some(name) = name else { return Ok(None) };
        let drive = File::open(Path::new("/dev").join(name))?;
        let smart = read_log(&drive, SMART_PAGE)?;
        if smart == [0; LOG_BYTES] {
            return Ok(None);
        }
        // Drives that do not have the page refuse it.
        let extended = read_log(&drive, OCP_PAGE).ok();
        Ok(Some(Self::decode(&smart, extended.as_ref())))
    }

    fn decode(smart: &[u8; LOG_BYTES], extended: Option<&[u8; LOG_BYTES]>) -> Self {
        let media_bytes = extended
            .filter(|page| number(page, OCP_GUID_AT) == OCP_GUID)
            .map(|page| number(page, 0))
            .filter(|&bytes| bytes > 0);
        Self {
            used_percent: smart[5],
            host_bytes: number(smart, 48).saturating_mul(UNIT_BYTES),
            media_bytes,
        }
    }

    /// Bytes written to flash per byte that was sent since `earlier`, if the drive says so and at least
    /// `least_bytes` were sent.
    pub fn amplification_since(&self, earlier: &Self, least_bytes: u128) -> Option<f64> {
        let host = self.host_bytes.checked_sub(earlier.host_bytes)?;
        let media = self.media_bytes?.checked_sub(earlier.media_bytes?)?;
        (host >= least_bytes.max(1)).then(|| media as f64 / host as f64)
    }

    /// The same over the life of the drive.
    pub fn amplification(&self) -> Option<f64> {
        let unused = Self { used_percent: 0, host_bytes: 0, media_bytes: Some(0) };
        self.amplification_since(&unused, 1)
    }
}

/// 16 bytes of a log page, in the byte order of the specification.
fn number(page: &[u8; LOG_BYTES], at: usize) -> u128 {
    page[at..].first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes))
}

/// `struct nvme_passthru_cmd` of the kernel.
#[repr(C)]
#[derive(Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const ADMIN_COMMAND: rustix::ioctl::Opcode = opcode::read_write::<AdminCommand>(b'N', 0x41);
const _: () = assert!(size_of::<AdminCommand>() == 72);

fn read_log(drive: impl AsFd, page: u8) -> io::Result<[u8; LOG_BYTES]> {
    let mut log = [0; LOG_BYTES];
    // The count is in words of four bytes, less one.
    let words = (LOG_BYTES / 4 - 1) as u32;
    let mut command = AdminCommand {
        opcode: GET_LOG_PAGE,
        namespace: ALL_NAMESPACES,
        address: (&raw mut log).expose_provenance() as u64,
        data_bytes: LOG_BYTES as u32,
        words_10_15: [u32::from(page) | words << 16, 0, 0, 0, 0, 0],
        timeout_ms: TIMEOUT_MS,
        ..AdminCommand::default()
    };
    // SAFETY: The opcode belongs to this structure, which has the kernel's layout. The kernel writes at
    // most `data_bytes` to `address`, which is `log`, and that lives on and is not otherwise borrowed.
    unsafe { ioctl(drive, Updater::<ADMIN_COMMAND, AdminCommand>::new(&mut command)) }?;
    // What the drive refuses comes back as a positive number, which `Updater` does not tell: the page is
    // all zeros then.
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page as a drive would send it that was written 10 TB, and wrote 13 TB for it.
    fn pages() -> ([u8; LOG_BYTES], [u8; LOG_BYTES]) {
        let (mut smart, mut extended) = ([0; LOG_BYTES], [0; LOG_BYTES]);
        smart[0] = 4;
        smart[5] = 17;
        smart[32..48].copy_from_slice(&999u128.to_le_bytes());
        smart[48..64].copy_from_slice(&(10_000_000_000_000 / UNIT_BYTES).to_le_bytes());
        extended[..16].copy_from_slice(&13_000_000_000_000u128.to_le_bytes());
        extended[16..32].copy_from_slice(&5u128.to_le_bytes());
        let guid = [
            0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4, 0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14,
            0xd5, 0xaf,
        ];
        extended[496..].copy_from_slice(&guid);
        (smart, extended)
    }

    #[test]
    fn reads_what_the_drive_says_and_nothing_else() {
        let (smart, mut extended) = pages();
        let wear = Wear::decode(&smart, Some(&extended));
        let told = Wear {
            used_percent: 17,
            host_bytes: 10_000_000_000_000,
            media_bytes: Some(13_000_000_000_000),
        };
        assert_eq!(wear, told);
        let factor = wear.amplification().expect("both are told");
        assert!((factor - 1.3).abs() < 1e-3, "{factor}");
        assert_eq!(Wear::decode(&smart, None).amplification(), None);
        extended[500] ^= 1;
        assert_eq!(Wear::decode(&smart, Some(&extended)).amplification(), None, "another maker's");
        assert_eq!(Wear::decode(&[0; LOG_BYTES], Some(&[0; LOG_BYTES])).amplification(), None);
        let most = Wear::decode(&[255; LOG_BYTES], None);
        assert_eq!(most.host_bytes, u128::MAX, "no overflow");
    }

    #[test]
    fn tells_the_factor_of_late_once_enough_was_written() {
        let (smart, extended) = pages();
        let before = Wear::decode(&smart, Some(&extended));
        let after = Wear {
            host_bytes: before.host_bytes + 4000,
            media_bytes: before.media_bytes.map(|bytes| bytes + 10_000),
            ..before
        };
        assert_eq!(after.amplification_since(&before, 4000), Some(2.5));
        assert_eq!(after.amplification_since(&before, 4001), None);
        assert_eq!(before.amplification_since(&after, 1), None, "another drive");
    }

    #[test]
    fn what_is_on_no_nvme_drive_says_nothing() {
        let wear = Wear::of(Path::new("/proc/self/status")).expect("it can be opened");
        assert_eq!(wear, None);
        assert!(Wear::of(Path::new("/no such file")).is_err());
    }
}
