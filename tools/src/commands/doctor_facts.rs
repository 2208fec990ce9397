//! Facts: what this machine says about itself without a driver being asked: system, memory, limits, devices.
//!
//! Every fact is a value, or unknown with the reason. Nothing is started, only files are read.

use std::path::Path;

use blockyard::vocab::Human;

/// One line of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    /// The part of the page: `system`, `limits`, `gpu`, `driver`.
    pub section: &'static str,
    /// What it is.
    pub name: String,
    /// Its value, or why it is not known.
    pub value: Result<String, String>,
}

impl Fact {
    pub fn new(
        section: &'static str,
        name: impl Into<String>,
        value: Result<String, String>,
    ) -> Self {
        Self { section, name: name.into(), value }
    }
}

/// Where the files are: `/`, or a test's folder.
pub(super) struct Machine<'a> {
    pub root: &'a Path,
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Machine<'_> {
    /// A file's text.
    fn text(&self, path: &str) -> Result<String, String> {
        std::fs::read_to_string(self.root.join(path))
            .map(|text| text.trim().to_string())
            .map_err(|error| format!("/{path}: {}", plain(&error)))
    }

    fn first_line(&self, path: &str) -> Result<String, String> {
        let text = self.text(path)?;
        text.lines().next().map(str::to_string).ok_or_else(|| format!("/{path} is empty"))
    }

    /// A row `KEY: value` of a file.
    fn row(&self, path: &str, key: &str) -> Result<String, String> {
        let text = self.text(path)?;
        let row = text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix(':'));
        row.map(|value| value.trim().to_string()).ok_or_else(|| format!("/{path} has no {key}"))
    }

    /// Names in a folder that begin so.
    fn names(&self, folder: &str, begin: &str) -> Result<Vec<String>, String> {
        let entries = std::fs::read_dir(self.root.join(folder))
            .map_err(|error| format!("/{folder}: {}", plain(&error)))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
        names.sort();
        Ok(names)
    }

    /// Everything.
    pub fn facts(&self) -> Vec<Fact> {
        let mut facts = self.system();
        facts.extend(self.limits());
        facts.extend(self.gpu());
        facts
    }

    fn system(&self) -> Vec<Fact> {
        let fact = |name: &str, value| Fact::new("system", name, value);
        let release = self.text("etc/os-release").and_then(|text| {
            let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
            name.map(|name| name.trim_matches('"').to_string())
                .ok_or_else(|| "/etc/os-release has no PRETTY_NAME".to_string())
        });
        let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        let cpus = std::thread::available_parallelism().map(|count| count.to_string());
        vec![
            fact("blockyard", Ok(env!("CARGO_PKG_VERSION").to_string())),
            fact("system", Ok(system)),
            fact("distribution", release),
            fact("kernel", self.first_line("proc/sys/kernel/osrelease")),
            fact("CPUs usable", cpus.map_err(|error| plain(&error))),
            fact("memory", self.row("proc/meminfo", "MemTotal").and_then(|text| kilobytes(&text))),
            fact(
                "memory available",
                self.row("proc/meminfo", "MemAvailable").and_then(|text| kilobytes(&text)),
            ),
        ]
    }

    fn limits(&self) -> Vec<Fact> {
        let fact = |name: &str, value| Fact::new("limits", name, value);
        let kernel = self.first_line("proc/sys/kernel/osrelease").unwrap_or_default();
        let wsl = kernel.to_ascii_lowercase().contains("microsoft");
        let wddm = match (cfg!(windows), wsl) {
            (_, true) => {
                "WSL: the Windows driver (WDDM) manages memory; pinned memory is limited and charged to \
                          the card, and memory may be paged out silently"
            }
            (true, _) => "Windows: WDDM or TCC, which only the driver tells",
            _ => "no (not Windows, not WSL)",
        };
        vec![
            fact("container", self.container()),
            fact("memory limit (cgroup)", self.cgroup_limit()),
            fact("locked memory (ulimit -l)", self.locked_limit()),
            fact("WDDM", Ok(wddm.to_string())),
            fact("MIG", self.mig()),
            fact("visible devices", self.visible()),
        ]
    }

    fn container(&self) -> Result<String, String> {
        let marks = [(".dockerenv", "docker"), ("run/.containerenv", "podman")];
        let marked = marks.iter().find(|(path, _)| self.root.join(path).exists());
        if let Some((_, name)) = marked {
            return Ok((*name).to_string());
        }
        let groups = self.text("proc/1/cgroup")?;
        let known = ["docker", "kubepods", "containerd", "lxc"];
        let found = known.iter().find(|name| groups.contains(**name));
        Ok(found.map_or_else(|| "no sign of one".to_string(), |name| (*name).to_string()))
    }

    fn cgroup_limit(&self) -> Result<String, String> {
        let own = self.text("proc/self/cgroup").unwrap_or_default();
        let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
        let inner = format!("sys/fs/cgroup/{}/memory.max", path.trim_matches('/'));
        let places = [
            inner.replace("//", "/"),
            "sys/fs/cgroup/memory.max".to_string(),
            "sys/fs/cgroup/memory/memory.limit_in_bytes".to_string(),
        ];
        let text = places.iter().find_map(|place| self.text(place).ok());
        let text = text.ok_or("no memory.max and no memory.limit_in_bytes under /sys/fs/cgroup")?;
        if text == "max" {
            return Ok("none".to_string());
        }
        let bytes: u64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
        // The old interface says "none" by a number near 2^63.
        Ok(if bytes >= 1 << 60 { "none".to_string() } else { Human(bytes).to_string() })
    }

    fn locked_limit(&self) -> Result<String, String> {
        let text = self.text("proc/self/limits")?;
        let row = text.lines().find_map(|line| line.strip_prefix("Max locked memory"));
        let soft = row.and_then(|row| row.split_whitespace().next());
        let soft = soft.ok_or("/proc/self/limits has no Max locked memory")?;
        Ok(match soft.parse::<u64>() {
            Ok(bytes) => Human(bytes).to_string(),
            Err(_) => soft.to_string(),
        })
    }

    fn mig(&self) -> Result<String, String> {
        let visible = (self.variable)("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        if visible.contains("MIG-") {
            return Ok(format!("yes: CUDA_VISIBLE_DEVICES={visible}"));
        }
        let capabilities = self.names("proc/driver/nvidia/capabilities", "mig");
        match capabilities.as_deref() {
            Ok([]) | Err(_) => {
                Err("no driver to ask, and CUDA_VISIBLE_DEVICES names none".to_string())
            }
            Ok(_) => {
                Err("the driver can; whether a device is split only the driver tells".to_string())
            }
        }
    }

    fn visible(&self) -> Result<String, String> {
        let names = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];
        let set: Vec<String> = names
            .iter()
            .filter_map(|name| Some(format!("{name}={}", (self.variable)(name)?)))
            .collect();
        Ok(if set.is_empty() { "all (no variable hides any)".to_string() } else { set.join(", ") })
    }

    fn gpu(&self) -> Vec<Fact> {
        let fact = |name: &str, value| Fact::new("gpu", name, value);
        let version = self.first_line("proc/driver/nvidia/version");
        let nodes = self.names("dev", "nvidia").and_then(|names| match names.is_empty() {
            true => Err("no /dev/nvidia*".to_string()),
            false => Ok(names.join(", ")),
        });
        let mut facts = vec![fact("NVIDIA kernel driver", version), fact("device files", nodes)];
        for gpu in self.names("proc/driver/nvidia/gpus", "").unwrap_or_default() {
            let path = format!("proc/driver/nvidia/gpus/{gpu}/information");
            facts.push(fact(&format!("GPU {gpu}"), self.row(&path, "Model")));
        }
        let amd = self.names("dev", "kfd").and_then(|names| match names.is_empty() {
            true => Err("no /dev/kfd".to_string()),
            false => Ok("/dev/kfd".to_string()),
        });
        facts.push(fact("AMD kernel driver", amd));
        facts
    }
}

fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "not there".to_string(),
        std::io::ErrorKind::PermissionDenied => "not readable".to_string(),
        _ => error.to_string(),
    }
}

fn kilobytes(text: &str) -> Result<String, String> {
    let number = text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
    let bytes = number.and_then(|number| number.checked_mul(1024));
    bytes.map(|bytes| Human(bytes).to_string()).ok_or_else(|| format!("{text:?} is no size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(facts: &[Fact], name: &str) -> Result<String, String> {
        facts.iter().find(|fact| fact.name == name).unwrap().value.clone()
    }

    #[test]
    fn a_bare_machine_names_what_it_cannot_tell() {
        let folder = tempfile::tempdir().unwrap();
        let facts = Machine { root: folder.path(), variable: &|_| None }.facts();
        for name in ["kernel", "memory", "memory limit (cgroup)", "NVIDIA kernel driver", "MIG"] {
            let reason = value(&facts, name).unwrap_err();
            assert!(!reason.is_empty(), "{name}");
        }
        assert_eq!(value(&facts, "kernel").unwrap_err(), "/proc/sys/kernel/osrelease: not there");
    }

    #[test]
    fn a_machine_with_a_card_in_a_container_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/meminfo", "MemTotal:       16384000 kB\nMemAvailable:  1024 kB\n");
        put("proc/sys/kernel/osrelease", "5.15.90-microsoft-standard-WSL2\n");
        put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX 570.1\nGCC\n");
        put("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA H100\nIRQ: 1\n");
        put("dev/nvidia0", "");
        put(".dockerenv", "");
        put("sys/fs/cgroup/memory.max", "8589934592\n");
        put("proc/self/limits", "Max locked memory         65536      65536      bytes\n");
        let mig = |name: &str| (name == "CUDA_VISIBLE_DEVICES").then(|| "MIG-1234".to_string());
        let facts = Machine { root: folder.path(), variable: &mig }.facts();
        let is = |name: &str, text: &str| assert_eq!(value(&facts, name).as_deref(), Ok(text));
        is("memory", "15.62 GiB");
        is("memory limit (cgroup)", "8.00 GiB");
        is("container", "docker");
        is("locked memory (ulimit -l)", "64.00 KiB");
        is("NVIDIA kernel driver", "NVRM version: NVIDIA UNIX 570.1");
        is("GPU 0000:01:00.0", "NVIDIA H100");
        is("device files", "nvidia0");
        is("MIG", "yes: CUDA_VISIBLE_DEVICES=MIG-1234");
        assert!(value(&facts, "WDDM").unwrap().starts_with("WSL"));
    }
}
