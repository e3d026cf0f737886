//! QEMU's command line. Pure: nothing is started here.

use std::path::Path;

use super::machine::{Machine, STAGED_FIRST};
use crate::arch::Arch;
use crate::model::{Accel, Boot, Level, Online, Shape};

/// Name of the virtio-serial port that carries results; the guest agent looks for it.
const PORT: &str = "matrix.results";

/// Files and figures of one boot.
#[derive(Debug, Clone, Copy)]
pub struct Guest<'a> {
    /// Kernel image.
    pub image: &'a Path,
    /// Initial RAM file system.
    pub initramfs: &'a Path,
    /// Firmware in place of the stock one.
    pub firmware: Option<&'a Path>,
    /// File or FIFO that gets the results.
    pub results: &'a Path,
}

/// Program and arguments that boot `guest` on `arch` as `machine` says.
pub fn command(arch: &Arch, boot: &Boot, machine: &Machine, guest: Guest<'_>) -> Vec<String> {
    let mut argv = vec![arch.qemu.program.clone()];
    let mut arg = |name: &str, value: String| argv.extend([name.to_owned(), value]);
    // A validated matrix has no boot whose figures do not go together.
    let shape = boot.shape().ok().flatten();
    let nodes = shape.as_ref().map_or(0, |s| s.nodes.len());
    for (name, value) in processor(arch, machine.accel, nodes).into_iter().chain(accel(machine)) {
        arg(name, value);
    }
    arg("-smp", processors(arch, boot.vcpus, shape.as_ref()));
    arg("-m", format!("{}M", boot.memory_mib));
    for (name, value) in shape.iter().flat_map(numa) {
        arg(name, value);
    }
    if let Some(firmware) = guest.firmware {
        arg("-bios", firmware.display().to_string());
    }
    arg("-kernel", guest.image.display().to_string());
    arg("-initrd", guest.initramfs.display().to_string());
    arg("-append", kernel_command_line(arch, boot, machine));
    arg("-display", "none".to_owned());
    arg("-monitor", "none".to_owned());
    arg("-chardev", "stdio,id=console,signal=off".to_owned());
    arg("-serial", "chardev:console".to_owned());
    arg("-device", "virtio-serial-device".to_owned());
    arg("-chardev", format!("file,id=results,path={}", option_value(guest.results)));
    arg("-device", format!("virtserialport,chardev=results,name={PORT}"));
    argv.extend(["-nodefaults".to_owned(), "-no-user-config".to_owned(), "-no-reboot".to_owned()]);
    argv.extend(boot.qemu_args.iter().cloned());
    argv
}

/// A fault ends the guest at once, so that it is seen and named instead of
/// being waited for; `earlycon` lets even one before the console come be seen.
fn kernel_command_line(arch: &Arch, boot: &Boot, machine: &Machine) -> String {
    let mut line = format!("console={} earlycon panic=-1 oops=panic", arch.qemu.console);
    if machine.online == Online::Staged {
        // With hundreds of processors one early step takes longer than the 21 s
        // after which RCU reports a stall; 300 s is its maximum.
        line.push_str(&format!(" maxcpus={STAGED_FIRST} rcupdate.rcu_cpu_stall_timeout=300"));
    }
    if !boot.cmdline.is_empty() {
        line.push_str(&format!(" {}", boot.cmdline));
    }
    line
}

/// The machine with so many NUMA nodes and its processors; with KVM they are the host's.
pub(super) fn processor(arch: &Arch, accel: Accel, nodes: usize) -> Vec<(&'static str, String)> {
    let (machine, cpu) = match (&arch.kvm, &arch.qemu.numa_machine) {
        (Some(kvm), _) if accel == Accel::Kvm => (&kvm.machine, &kvm.cpu),
        (_, Some(machine)) if nodes > 0 => (machine, &arch.qemu.cpu),
        _ => (&arch.qemu.machine, &arch.qemu.cpu),
    };
    vec![("-machine", machine.clone()), ("-cpu", cpu.clone())]
}

/// Processors, with every level spelled out: what QEMU infers has changed over
/// its versions. It refuses `clusters` for machines without them.
fn processors(arch: &Arch, vcpus: u32, shape: Option<&Shape>) -> String {
    let mut text = vcpus.to_string();
    for level in Level::ALL {
        let known = level != Level::Clusters || arch.qemu.topology.contains(&level);
        if let (Some(shape), true) = (shape, known) {
            text.push_str(&format!(",{}={}", level.name(), shape.count(level)));
        }
    }
    text
}

/// Memory and processors of each NUMA node, and the distance of each pair:
/// given one way, QEMU takes it for the other too.
fn numa(shape: &Shape) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    for (i, node) in shape.nodes.iter().enumerate() {
        let (first, last) = (node.cpus.start, node.cpus.end - 1);
        options.push(("-object", format!("memory-backend-ram,id=node{i},size={}M", node.memory_mib)));
        options.push(("-numa", format!("node,nodeid={i},cpus={first}-{last},memdev=node{i}")));
    }
    for (i, node) in shape.nodes.iter().enumerate() {
        for (j, distance) in node.distances.iter().enumerate().skip(i + 1) {
            options.push(("-numa", format!("dist,src={i},dst={j},val={distance}")));
        }
    }
    options
}

/// The seed feeds everything that QEMU or the device tree would take from the
/// host's random numbers. Counting instructions, the guest's clocks, its date
/// included, must have no other source either.
fn accel(machine: &Machine) -> Vec<(&'static str, String)> {
    let threads = match machine.accel {
        Accel::Kvm => "kvm",
        Accel::TcgMulti | Accel::Auto => "tcg,thread=multi",
        Accel::TcgSingle | Accel::Icount => "tcg,thread=single",
    };
    let mut options = vec![("-accel", threads.to_owned()), ("-seed", machine.seed.to_string())];
    if machine.accel == Accel::Icount {
        options.push(("-icount", "shift=0,sleep=off".to_owned()));
        options.push(("-rtc", "clock=vm,base=2024-01-01T00:00:00".to_owned()));
    }
    options
}

/// In QEMU's option lists a comma inside a value is written twice.
fn option_value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Host, Kvm};
    use super::*;
    use crate::model::Topology;

    #[test]
    fn counted_instructions_leave_nothing_to_the_host() {
        let arch = crate::arch::all().unwrap().remove(0);
        let boot = Boot { accel: Accel::Icount, online: Online::Staged, ..boot() };
        let machine = Machine::choose(&arch, &boot, &host(), 1);
        let path = Path::new("x");
        let guest = Guest { image: path, initramfs: path, firmware: None, results: path };
        let argv = command(&arch, &boot, &machine, guest).join(" ");
        for part in
            ["-accel tcg,thread=single", "-seed 1", "-icount shift=0,sleep=off", "-rtc clock=vm,base="]
        {
            assert!(argv.contains(part), "{argv}");
        }
        assert!(argv.contains(" maxcpus=2 "), "{argv}");
        assert!(!argv.contains("-bios"), "{argv}");
    }

    fn host() -> Host {
        Host { cores: 8, kvm: Kvm::Foreign }
    }

    #[test]
    fn kvm_runs_the_host_s_processors() {
        let mut arch = crate::arch::all().unwrap().remove(0);
        let path = Path::new("x");
        let guest = Guest { image: path, initramfs: path, firmware: None, results: path };
        let machine = Machine::choose(&arch, &boot(), &Host { cores: 8, kvm: Kvm::Works }, 1);
        let argv = command(&arch, &boot(), &machine, guest).join(" ");
        assert!(argv.contains("-cpu host -accel kvm "), "{argv}");
        arch.kvm = None;
        assert!(!command(&arch, &boot(), &machine, guest).join(" ").contains("-cpu host"));
    }

    fn boot() -> Boot {
        Boot {
            vcpus: 7,
            qemu_args: vec!["-d".into(), "guest_errors".into()],
            cmdline: "quiet; rm -rf $HOME".into(),
            ..Boot::plain()
        }
    }

    /// The command of a guest with 8 processors.
    fn with_topology(arch: &Arch, topology: Topology) -> String {
        let path = Path::new("x");
        let guest = Guest { image: path, initramfs: path, firmware: None, results: path };
        let boot = Boot { vcpus: 8, topology, ..boot() };
        command(arch, &boot, &Machine::choose(arch, &boot, &host(), 1), guest).join(" ")
    }

    #[test]
    fn every_level_of_a_topology_is_spelled_out() {
        let topology = Topology { levels: [Some(2), None, None, Some(2)], ..Topology::default() };
        let mut arch = crate::arch::all().unwrap().remove(0);
        arch.qemu.topology = Level::ALL.to_vec();
        let argv = with_topology(&arch, topology.clone());
        assert!(argv.contains("-smp 8,sockets=2,clusters=1,cores=2,threads=2 -m 1024M "), "{argv}");
        assert!(!argv.contains("-numa"), "{argv}");
        arch.qemu.topology = vec![Level::Cores];
        let argv = with_topology(&arch, topology);
        assert!(argv.contains("-smp 8,sockets=2,cores=2,threads=2 "), "QEMU 7.2 refuses clusters: {argv}");
    }

    #[test]
    fn numa_nodes_get_processors_memory_and_distances() {
        let numa = Topology { numa: Some(2), numa_memory: vec![768, 256], ..Topology::default() };
        for arch in crate::arch::all().unwrap() {
            let argv = with_topology(&arch, numa.clone());
            for part in [
                "-smp 8,sockets=2,",
                "-object memory-backend-ram,id=node0,size=768M -numa node,nodeid=0,cpus=0-3,memdev=node0 ",
                "-object memory-backend-ram,id=node1,size=256M -numa node,nodeid=1,cpus=4-7,memdev=node1 ",
                "-numa dist,src=0,dst=1,val=20 ",
            ] {
                assert!(argv.contains(part), "{part} in {argv}");
            }
            assert_eq!(argv.matches("-numa").count(), 3, "{argv}");
            let machine = arch.qemu.numa_machine.as_ref().unwrap_or(&arch.qemu.machine);
            assert!(argv.contains(&format!("-machine {machine} ")), "{argv}");
            let one = with_topology(&arch, Topology { numa: Some(1), ..Topology::default() });
            assert!(one.contains(&format!("-machine {machine} ")), "the same for any number: {one}");
            let none = with_topology(&arch, Topology::default());
            assert!(none.contains(&format!("-machine {} ", arch.qemu.machine)), "{none}");
        }
    }

    #[test]
    fn every_architecture_gets_a_whole_command() {
        for arch in crate::arch::all().unwrap() {
            let guest = Guest {
                image: Path::new("/k/Image"),
                initramfs: Path::new("/g/init.cpio"),
                firmware: Some(Path::new("/f/fw.elf")),
                results: Path::new("/r/a,b"),
            };
            let machine = Machine::choose(&arch, &boot(), &host(), 1);
            let argv = command(&arch, &boot(), &machine, guest);
            let after = |name: &str| argv.iter().skip_while(|a| *a != name).nth(1).cloned().unwrap();
            assert_eq!(argv[0], arch.qemu.program);
            assert_eq!(after("-smp"), "7");
            assert_eq!(after("-bios"), "/f/fw.elf");
            assert_eq!(after("-accel"), "tcg,thread=multi");
            assert_eq!(after("-m"), "1024M");
            assert_eq!(after("-kernel"), "/k/Image");
            // One argument, whatever is in it: there is no shell.
            let append = after("-append");
            assert!(append.starts_with(&format!("console={}", arch.qemu.console)), "{append}");
            assert!(append.ends_with(" quiet; rm -rf $HOME"), "{append}");
            assert!(argv.contains(&"file,id=results,path=/r/a,,b".to_owned()), "{argv:?}");
            assert_eq!(argv[argv.len() - 2..], ["-d", "guest_errors"]);
        }
    }
}
