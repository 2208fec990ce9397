//! Configuration: what the simulated machine is like, read from `SIMCUDA_*` once.
//!
//! Asked when the world is made. Unreadable values are told on stderr and left at their default.

use std::env;
use std::str::FromStr;

/// What a kernel of a module does that has no host build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    /// Nothing, and it is counted.
    Skip,
    /// It cannot be found.
    Refuse,
}

/// The simulated machine.
#[derive(Clone, Debug)]
pub struct Config {
    pub devices: usize,
    pub memory: u64,
    pub context_bytes: u64,
    pub name: String,
    pub capability: (i32, i32),
    pub processors: i32,
    pub pools: bool,
    pub vmm: bool,
    pub granule: u64,
    pub charge: u64,
    pub address_space: u64,
    /// Addresses are used again only when all others were.
    pub fresh: bool,
    pub driver_version: i32,
    pub strangers: Strangers,
    /// Seed and the longest pause in microseconds.
    pub jitter: Option<(u64, u64)>,
    pub op_nanos: u64,
}

impl Config {
    /// What the environment says.
    pub fn read() -> Self {
        let cc = parsed::<f64>("SIMCUDA_CC", 8.0);
        let strangers = match env::var("SIMCUDA_UNKNOWN_KERNELS").as_deref() {
            Ok("refuse") => Strangers::Refuse,
            _ => Strangers::Skip,
        };
        Self {
            devices: parsed("SIMCUDA_DEVICES", 1).min(64),
            memory: bytes("SIMCUDA_MEMORY", 16 << 30),
            context_bytes: bytes("SIMCUDA_CONTEXT_BYTES", 0),
            name: env::var("SIMCUDA_NAME").unwrap_or_else(|_| "simulated GPU".into()),
            capability: (cc as i32, (cc * 10.0).round() as i32 % 10),
            processors: parsed("SIMCUDA_PROCESSORS", 108),
            pools: parsed("SIMCUDA_POOLS", 1) != 0,
            vmm: parsed("SIMCUDA_VMM", 1) != 0,
            granule: power("SIMCUDA_GRANULE", 2 << 20, 4096),
            charge: power("SIMCUDA_CHARGE", 512, 512),
            address_space: bytes("SIMCUDA_ADDRESS_SPACE", 8 << 40),
            fresh: parsed("SIMCUDA_FRESH_ADDRESSES", 0) != 0,
            driver_version: parsed("SIMCUDA_DRIVER_VERSION", 13_040),
            strangers,
            jitter: pair("SIMCUDA_JITTER"),
            op_nanos: parsed("SIMCUDA_OP_NS", 0),
        }
    }
}

fn parsed<T: FromStr>(name: &str, otherwise: T) -> T {
    let Ok(text) = env::var(name) else { return otherwise };
    text.trim().parse().unwrap_or_else(|_| complain(name, &text, otherwise))
}

fn complain<T>(name: &str, text: &str, otherwise: T) -> T {
    eprintln!("simcuda: {name}={text:?} is not understood; its default holds");
    otherwise
}

fn bytes(name: &str, otherwise: u64) -> u64 {
    let Ok(text) = env::var(name) else { return otherwise };
    parse_bytes(&text).unwrap_or_else(|| complain(name, &text, otherwise))
}

fn power(name: &str, otherwise: u64, least: u64) -> u64 {
    let value = bytes(name, otherwise);
    let fits = value.is_power_of_two() && value >= least;
    if fits { value } else { complain(name, &value.to_string(), otherwise) }
}

fn pair(name: &str) -> Option<(u64, u64)> {
    let text = env::var(name).ok()?;
    let (seed, most) = text.split_once(':').unwrap_or((&text, "50"));
    Some((seed.trim().parse().ok()?, most.trim().parse().ok()?))
}

/// `12`, `512K`, `24G`, with binary suffixes.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn bytes_have_binary_suffixes() {
        assert_eq!(parse_bytes("24G"), Some(24 << 30));
        assert_eq!(parse_bytes(" 512k "), Some(512 << 10));
        assert_eq!(parse_bytes("7"), Some(7));
        assert_eq!(parse_bytes("G"), None);
        assert_eq!(parse_bytes("99999999T"), None, "too many");
    }
}
