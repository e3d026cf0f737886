//! Stack frames of a kernel's functions, read from its disassembly.
//!
//! What counts is what scripts/checkstack.pl of the kernel looks for: the
//! instructions that move the stack pointer by a fixed amount. That script adds
//! up all of a function's; here they are followed along the function's jumps,
//! so that two ways through it that each make a frame do not count as one frame
//! of twice the size. The result is the depth that the function's own
//! instructions reach, without its callees: what `gcc -fstack-usage` says.
//! Allocations whose size only run time tells (variable-length arrays) are not
//! in it; functions that have some are noted.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use fs_err as fs;
use regex::{Captures, Regex, RegexSet};
use serde::{Deserialize, Serialize};

use super::build::Built;
use super::toolchain::Tools;
use crate::arch::{Arch, StackFacts};
use crate::cache::write_whole;
use crate::model::Frames;
use crate::process::{self, Limits, Spec, Stop, Stream};

/// File of a build's entry that holds its frames.
pub const FILE: &str = "frames.json";
/// Raise it when frames are read in another way.
const RECIPE: u32 = 1;
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// Longest name of a symbol: the kernel's `KSYM_NAME_LEN`.
const NAME_CAP: usize = 512;
/// Most functions; an allyesconfig kernel has about 400,000.
const FUNCTIONS_CAP: usize = 1 << 20;
/// Most bytes that the functions' names may have together.
const NAMES_CAP: usize = 128 << 20;
/// Most jumps of one function that are followed.
const JUMPS_CAP: usize = 1 << 16;
/// Most registers whose content is remembered.
const REGISTERS_CAP: usize = 64;

/// Frames as they are kept with a build.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    recipe: u32,
    rules: StackFacts,
    frames: Frames,
}

/// The frames of a built kernel: those kept with it, or else read from its
/// `vmlinux` and kept from then on.
///
/// # Errors
/// objdump is not installed, failed or printed what is no disassembly, or the
/// cache cannot be written.
pub async fn of(built: &Built, arch: &Arch, tools: &Tools, stop: &Stop) -> anyhow::Result<Frames> {
    let path = built.dir.join(FILE);
    let kept = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Kept>(&text).ok());
    if let Some(kept) = kept.filter(|k| k.recipe == RECIPE && k.rules == arch.stack) {
        return Ok(kept.frames);
    }
    let frames = read(&built.dir.join("vmlinux"), arch, tools, stop).await?;
    let kept = Kept { recipe: RECIPE, rules: arch.stack.clone(), frames };
    write_whole(&path, &serde_json::to_vec(&kept)?)?;
    Ok(kept.frames)
}

/// Reads the frames of an ELF file's functions.
///
/// # Errors
/// objdump is not installed, failed, or printed what is no disassembly.
pub async fn read(file: &Path, arch: &Arch, tools: &Tools, stop: &Stop) -> anyhow::Result<Frames> {
    let spec = Spec::new(&tools.objdump).args(["-d", "--no-show-raw-insn"]).arg(file);
    let limits = Limits { deadline: Some(LIMIT), ..Limits::default() };
    let mut reader = Reader::new(&arch.stack)?;
    let mut fault = None;
    let mut said = String::new();
    let exit = process::run(&spec, &limits, stop, |stream, line| {
        let line = String::from_utf8_lossy(line);
        if stream == Stream::Stderr {
            said = line.chars().take(1000).collect();
            return ControlFlow::Continue(());
        }
        match reader.line(&line) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                fault = Some(error);
                ControlFlow::Break(())
            }
        }
    })
    .await?;
    if let Some(error) = fault {
        return Err(error);
    }
    if !exit.success() {
        bail!("`{}` failed: {} {said}", spec.command_line(), exit.status);
    }
    reader.finish()
}

/// What an instruction does that matches one of [`StackFacts`]' expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Grow,
    Shrink,
    Dynamic,
    Switch,
    Load,
    Add,
    End,
    Write,
}

/// Reads a disassembly line by line.
struct Reader {
    rules: Vec<(Rule, Regex)>,
    set: RegexSet,
    frames: Frames,
    names_length: usize,
    function: Option<Function>,
}

impl Reader {
    fn new(facts: &StackFacts) -> anyhow::Result<Reader> {
        let lists = [
            (Rule::Grow, &facts.grow),
            (Rule::Shrink, &facts.shrink),
            (Rule::Dynamic, &facts.dynamic),
            (Rule::Switch, &facts.switch),
            (Rule::Load, &facts.load),
            (Rule::Add, &facts.add),
            (Rule::End, &facts.end),
            (Rule::Write, &facts.write),
        ];
        let patterns: Vec<(Rule, &String)> =
            lists.iter().flat_map(|(rule, list)| list.iter().map(|p| (*rule, p))).collect();
        let compiled = patterns.iter().map(|(rule, p)| Ok((*rule, Regex::new(p)?)));
        Ok(Reader {
            rules: compiled.collect::<anyhow::Result<_>>().context("[stack]")?,
            set: RegexSet::new(patterns.iter().map(|(_, p)| p))?,
            frames: Frames::default(),
            names_length: 0,
            function: None,
        })
    }

    /// Takes the next line.
    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        if let Some(name) = label(line) {
            return self.begin(name);
        }
        let Some(function) = &mut self.function else { return Ok(()) };
        let Some((address, text)) = instruction(line) else { return Ok(()) };
        function.arrive(address);
        // The first rule counts: `write` is for what no other explains.
        for index in &self.set.matches(text) {
            let (rule, regex) = &self.rules[index];
            if function.cares_for(*rule) {
                // The set says that it matches.
                let Some(captures) = regex.captures(text) else { continue };
                function.apply(*rule, &captures);
                break;
            }
        }
        function.leave(text);
        Ok(())
    }

    fn begin(&mut self, name: &str) -> anyhow::Result<()> {
        // Labels within functions: mapping symbols of the ELF ABIs, jump targets.
        if name.starts_with('$') || name.contains(".L") {
            return Ok(());
        }
        self.end();
        self.names_length += name.len();
        if name.len() > NAME_CAP || self.names_length > NAMES_CAP || self.frames.bytes.len() >= FUNCTIONS_CAP
        {
            bail!("the disassembly is no kernel's: too many functions, or too long a name");
        }
        self.function = Some(Function { name: name.to_owned(), ..Function::default() });
        Ok(())
    }

    /// Notes the function that is complete now.
    fn end(&mut self) {
        let Some(Function { name, deepest, dynamic, .. }) = self.function.take() else { return };
        if dynamic {
            self.frames.dynamic.insert(name.clone());
        }
        match self.frames.bytes.get_mut(&name) {
            Some(bytes) => {
                *bytes = deepest.max(*bytes);
                *self.frames.namesakes.entry(name).or_insert(1) += 1;
            }
            None => drop(self.frames.bytes.insert(name, deepest)),
        }
    }

    fn finish(mut self) -> anyhow::Result<Frames> {
        self.end();
        if self.frames.bytes.is_empty() {
            bail!("there is no function in the disassembly");
        }
        Ok(self.frames)
    }
}

/// The name in `ffffffff80000000 <_start>:`.
fn label(line: &str) -> Option<&str> {
    let (address, name) = line.trim_end().strip_suffix(">:")?.split_once(" <")?;
    address.bytes().all(|b| b.is_ascii_hexdigit()).then_some(name)
}

/// Address and text of `ffffffff8000000a:\tadd\tsp,sp,-32`.
fn instruction(line: &str) -> Option<(u64, &str)> {
    let (address, text) = line.split_once(':')?;
    Some((u64::from_str_radix(address.trim(), 16).ok()?, text.trim()))
}

/// The address in `bnez\ta0,ffffffff80000010 <f+0x10>`; its name may follow
/// `0x`, a comma or a comment's sign.
fn target(text: &str) -> Option<u64> {
    let (before, _) = text.rsplit_once(" <")?;
    let word = before.rsplit([' ', '\t', ',']).next()?;
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

/// A function that is being followed.
#[derive(Debug, Default)]
struct Function {
    name: String,
    /// Bytes of stack in use before the next instruction.
    depth: i64,
    deepest: u64,
    dynamic: bool,
    /// The stack pointer is on another stack.
    away: bool,
    /// The next instruction is reached by jumps alone.
    ended: bool,
    /// Depth at places that were jumped to.
    jumps: HashMap<u64, i64>,
    /// Registers whose content is known.
    registers: HashMap<String, i64>,
}

impl Function {
    /// Control comes to `address`: from the instruction before, unless that was
    /// the end of a way, or by a jump. What only jumps from further down or
    /// through tables lead to counts as reached without a frame: a prologue can
    /// be there, and the frame of any other code was counted where it was made.
    fn arrive(&mut self, address: u64) {
        let jumped = self.jumps.get(&address).copied();
        self.depth = match (self.ended, jumped) {
            (false, jumped) => self.depth.max(jumped.unwrap_or(0)),
            (true, jumped) => jumped.unwrap_or(0),
        };
        self.away &= !self.ended;
        self.ended = false;
    }

    /// Notes where the instruction may jump to.
    fn leave(&mut self, text: &str) {
        if let Some(target) = target(text).filter(|_| self.jumps.len() < JUMPS_CAP) {
            let depth = self.jumps.entry(target).or_insert(0);
            *depth = self.depth.max(*depth);
        }
    }

    /// Whether the rule can change anything. Nearly every instruction writes a
    /// register, but few of their contents are known.
    fn cares_for(&self, rule: Rule) -> bool {
        !matches!(rule, Rule::Write | Rule::Add) || !self.registers.is_empty()
    }

    fn apply(&mut self, rule: Rule, captures: &Captures<'_>) {
        let group = |name: &str| captures.name(name).map(|m| m.as_str());
        let amount = self.amount(captures);
        let register = group("reg").unwrap_or_default();
        match (rule, amount) {
            (Rule::Grow, Some(bytes)) => self.grow(bytes),
            (Rule::Shrink, Some(bytes)) => self.grow(bytes.saturating_neg()),
            (Rule::Grow | Rule::Shrink | Rule::Dynamic, _) => self.dynamic = true,
            (Rule::Switch, _) => self.away = true,
            (Rule::Load, Some(value)) => self.set(register, Some(value)),
            (Rule::Add, Some(more)) => {
                let from = self.registers.get(group("from").unwrap_or(register));
                let sum = from.map(|value| value.saturating_add(more));
                self.set(register, sum);
            }
            (Rule::Load | Rule::Add | Rule::Write, _) => self.set(register, None),
            (Rule::End, _) => self.ended = true,
        }
    }

    fn grow(&mut self, bytes: i64) {
        if self.away {
            return;
        }
        self.depth = self.depth.saturating_add(bytes).max(0);
        self.deepest = self.deepest.max(self.depth.unsigned_abs());
    }

    fn set(&mut self, register: &str, value: Option<i64>) {
        match value.filter(|_| self.registers.len() < REGISTERS_CAP) {
            Some(value) => drop(self.registers.insert(register.to_owned(), value)),
            None => drop(self.registers.remove(register)),
        }
    }

    /// The amount that an expression's groups tell; see [`StackFacts`].
    fn amount(&self, captures: &Captures<'_>) -> Option<i64> {
        let group = |name: &str| captures.name(name).map(|m| m.as_str());
        if let Some(high) = group("high") {
            // Bits beyond the 32 are none of the instruction's.
            let high = u32::try_from(number(high)?).ok()?;
            return Some(i64::from((high << 12) as i32));
        }
        match group("bytes") {
            Some(bytes) => {
                let shift: u32 = group("shift").map_or(Some(0), |s| s.parse().ok())?;
                number(bytes)?.checked_mul(1_i64.checked_shl(shift)?)
            }
            None => self.registers.get(group("reg")?).copied(),
        }
    }
}

/// A decimal number, or a hexadecimal one behind `0x`.
fn number(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let value = match digits.strip_prefix("0x") {
        // Negative numbers can be printed as what they are in 64 bits.
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
        None => digits.parse().ok()?,
    };
    value.checked_mul(sign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    fn frames(arch: &str, text: &str) -> Frames {
        let mut reader = Reader::new(&arch::find(arch).unwrap().stack).unwrap();
        for line in text.lines() {
            reader.line(line).unwrap();
        }
        reader.finish().unwrap()
    }

    /// Frame of the only function, and whether it is dynamic.
    fn frame(arch: &str, text: &str) -> (u64, bool) {
        let frames = frames(arch, text);
        assert_eq!(frames.bytes.len(), 1, "{frames:?}");
        (frames.max(), !frames.dynamic.is_empty())
    }

    /// Two ways through a function of Linux 6.12 for riscv, each with a frame.
    const TWO_WAYS: &str = "
/cache/vmlinux:     file format elf64-littleriscv


Disassembly of section .text:

ffffffff801b0204 <operstate_show>:
ffffffff801b0204:\tlw\ta5,-424(a0)
ffffffff801b0210:\tbeqz\ta4,ffffffff801b0244 <operstate_show+0x40>
ffffffff801b022e:\tadd\tsp,sp,-16
ffffffff801b0230:\tauipc\ta1,0xea
ffffffff801b0234:\tadd\ta1,a1,-8 # ffffffff8029a228 <kallsyms_seqs_of_names+0x15e60>
ffffffff801b0238:\tsd\tra,8(sp)
ffffffff801b023a:\tjal\tffffffff8010c624 <sysfs_emit>
ffffffff801b023e:\tld\tra,8(sp)
ffffffff801b0240:\tadd\tsp,sp,16
ffffffff801b0242:\tret
ffffffff801b0244:\tadd\tsp,sp,-16
ffffffff801b0256:\tsd\tra,8(sp)
ffffffff801b0258:\tjal\tffffffff8010c624 <sysfs_emit>
ffffffff801b025e:\tadd\tsp,sp,16
ffffffff801b0260:\tret
ffffffff801b0262:\tli\ta0,-22
ffffffff801b0264:\tret
";

    #[test]
    fn alternatives_do_not_add_up() {
        assert_eq!(frame("riscv64", TWO_WAYS), (16, false));
        // The exception vectors of arm64, each of which makes its own frame.
        let vectors = "
ffffffc080010800 <vectors>:
ffffffc080010800:\tsub\tsp, sp, #0x150
ffffffc080010804:\tb\tffffffc080011000 <el1t_64_sync>
\t...
ffffffc080010c00:\tb\tffffffc080010c0c <vectors+0x40c>
ffffffc080010c04:\tmrs\tx30, tpidrro_el0
ffffffc080010c0c:\tsub\tsp, sp, #0x150
ffffffc080010c10:\tb\tffffffc080011340 <el0t_64_sync>
";
        assert_eq!(frame("aarch64", vectors), (336, false));
    }

    #[test]
    fn what_is_made_after_a_jump_adds_up() {
        // gcc -O2 of `if (n) use(alloca(4096));`: -fstack-usage says 4128.
        let text = "
0000000000000434 <fixedalloca>:
 434:\tstp\tx29, x30, [sp, #-32]!
 438:\tmov\tx29, sp
 444:\tcbnz\tw0, 460 <fixedalloca+0x2c>
 448:\tmov\tw0, w19
 44c:\tmov\tsp, x29
 454:\tldp\tx29, x30, [sp], #32
 458:\tb\t0 <g>
 460:\tsub\tsp, sp, #0x1, lsl #12
 464:\tmov\tx0, sp
 468:\tbl\t0 <use>
 46c:\tb\t448 <fixedalloca+0x14>
";
        assert_eq!(frame("aarch64", text), (4128, false));
    }

    #[test]
    fn usual_frames_as_both_objdumps_print_them() {
        let riscv = "
ffffffff800d2abc <do_sys_poll>:
ffffffff800d2abc:\tadd\tsp,sp,-1072
ffffffff800d2ac0:\tsd\ts3,1032(sp)
ffffffff800d2acc:\tmv\ts8,a0
";
        assert_eq!(frame("riscv64", riscv), (1072, false));
        let llvm = riscv.replace(":\tadd\tsp,sp,", ":      \taddi\tsp, sp, ");
        assert_eq!(frame("riscv64", &llvm), (1072, false));
        let compressed = riscv.replace("add\tsp,sp,-1072", "c.addi16sp\tsp,-96");
        assert_eq!(frame("riscv64", &compressed), (96, false));
        let arm = "
ffffffc080293a48 <mas_wr_bnode>:
ffffffc080293a48:\tsub\tsp, sp, #0x430
ffffffc080293a4c:\tmov\tx2, #0x268                 \t// #616
ffffffc080293a54:\tstp\tx29, x30, [sp]
";
        assert_eq!(frame("aarch64", arm), (1072, false));
        let llvm = arm.replace(":\tsub\tsp, sp, #0x430", ":      \tsub\tsp, sp, #1072");
        assert_eq!(frame("aarch64", &llvm), (1072, false));
    }

    #[test]
    fn frames_too_large_for_one_instruction() {
        // All from gcc 12 -O2: char b[5000], then char b[70000].
        let riscv = "
000000000000003e <large>:
  3e:\tadd\tsp,sp,-944
  42:\tlui\ts0,0xfffff
  46:\tlui\ts1,0x1
  4a:\tlui\tt0,0xfffff
  5c:\tadd\tsp,sp,t0
  5e:\tadd\ta0,a5,sp
  7c:\tlui\tt0,0x1
  82:\tadd\tsp,sp,t0
  8a:\tadd\tsp,sp,944
  8e:\tret
";
        assert_eq!(frame("riscv64", riscv), (5040, false));
        let subtracted = "
0000000000000000 <large>:
   0:      \tlui\ta0, 1
   2:      \taddiw\ta0, a0, 944
   6:      \tsub\tsp, sp, a0
";
        assert_eq!(frame("riscv64", subtracted), (5040, false));
        let by_register = "
0000000000000060 <large>:
  60:\tmov\tx12, #0x13a0                \t// #5024
  64:\tsub\tsp, sp, x12
  68:\tadd\tx0, sp, #0x18
  7c:\tmov\tx12, #0x13a0                \t// #5024
  84:\tadd\tsp, sp, x12
  88:\tret
";
        assert_eq!(frame("aarch64", by_register), (5024, false));
        let shifted = "
0000000000000090 <huge>:
  90:\tsub\tsp, sp, #0x180
  94:\tsub\tsp, sp, #0x11, lsl #12
  98:\tadd\tx0, sp, #0x10
";
        assert_eq!(frame("aarch64", shifted), (70016, false));
        let in_halves = "
0000000000000000 <huge>:
   0:\tmov\tw9, #0x180
   4:\tmovk\tw9, #0x1, lsl #16
   8:\tsub\tsp, sp, x9
";
        assert_eq!(frame("aarch64", in_halves), (0x1_0180, false));
    }

    #[test]
    fn variable_length_arrays_are_noted_not_counted() {
        let riscv = "
00000000000000d2 <vla>:
  d2:\tadd\tsp,sp,-16
  d4:\tadd\ta0,a0,15
  da:\tadd\ts0,sp,16
  dc:\tand\ta0,a0,-16
  de:\tsub\tsp,sp,a0
  e2:\tmv\ta0,sp
  f0:\tadd\tsp,s0,-16
  f8:\tadd\tsp,sp,16
  fa:\tret
";
        assert_eq!(frame("riscv64", riscv), (16, true));
        let overwritten = riscv.replace("add\ta0,a0,15", "li\ta0,15");
        assert_eq!(frame("riscv64", &overwritten), (16, true), "the constant is stale");
        let llvm = riscv.replace("sub\tsp,sp,a0", "sub\ta0,sp,a0\n  e0:\tmv\tsp,a0");
        assert_eq!(frame("riscv64", &llvm), (16, true));
        let arm = "
00000000000000c0 <vla>:
  c4:\tstp\tx29, x30, [sp, #-16]!
  cc:\tand\tx0, x0, #0xfffffffffffffff0
  d4:\tsub\tsp, sp, x0
  e4:\tmov\tsp, x29
  e8:\tldp\tx29, x30, [sp], #16
  ec:\tret
";
        assert_eq!(frame("aarch64", arm), (16, true));
        let llvm = arm.replace("sub\tsp, sp, x0", "sub\tx8, sp, x0\n  d6:\tmov\tsp, x8");
        assert_eq!(frame("aarch64", &llvm), (16, true));
    }

    #[test]
    fn other_stacks_do_not_count() {
        // From _start_kernel of Linux 6.12, as llvm-objdump prints it.
        let text = "
ffffffff8000010c <_start_kernel>:
ffffffff80000156:      \tauipc\tsp, 696
ffffffff8000015a:      \taddi\tsp, sp, -342
ffffffff8000015e:      \taddi\tsp, sp, -288
ffffffff80000162:      \tret
ffffffff80000164:      \taddi\tsp, sp, -32
";
        assert_eq!(frame("riscv64", text), (32, false));
    }

    #[test]
    fn functions_without_a_frame_and_of_one_name() {
        let text = "
0000000000000000 <leaf>:
   0:\tadd\ta0,a0,1
   2:\tret

0000000000000004 <$d>:
   4:\tunimp

0000000000000006 <twice>:
   6:\tadd\tsp,sp,-32

000000000000000a <.L26>:
   a:\tadd\tsp,sp,-16

0000000000000010 <twice>:
  10:\tadd\tsp,sp,-16
";
        let frames = frames("riscv64", text);
        assert_eq!(frames.bytes, [("leaf".to_owned(), 0), ("twice".to_owned(), 48)].into());
        assert_eq!(frames.namesakes, [("twice".to_owned(), 2)].into());
        assert_eq!((frames.max(), frames.sum()), (48, 48));
    }

    #[test]
    fn what_is_no_disassembly_is_an_error_and_takes_no_room() {
        let facts = arch::find("riscv64").unwrap().stack;
        let reader = Reader::new(&facts).unwrap();
        assert!(reader.finish().unwrap_err().to_string().contains("no function"));
        let mut reader = Reader::new(&facts).unwrap();
        let long = format!("0 <{}>:", "x".repeat(NAME_CAP + 1));
        assert!(reader.line(&long).is_err());
        let mut reader = Reader::new(&facts).unwrap();
        reader.line("0 <f>:").unwrap();
        for n in 0..JUMPS_CAP as u64 + 10 {
            reader.line(&format!("{n:x}:\tj\t{:x} <f+0x1>", n + 1)).unwrap();
            reader.line(&format!("{n:x}:\tli\tx{n},1")).unwrap();
        }
        for amount in ["9223372036854775807", "99999999999999999999999", "-9223372036854775807"] {
            reader.line(&format!("0:\tadd\tsp,sp,{amount}")).unwrap();
            reader.line("0:\tadd\tsp,sp,-9223372036854775807").unwrap();
        }
        let function = reader.function.as_ref().unwrap();
        assert!(function.jumps.len() <= JUMPS_CAP && function.registers.len() <= REGISTERS_CAP);
        for junk in [
            "\u{0}",
            ":",
            "<",
            "0:",
            "x <y>:",
            "0 <>:",
            "ffffffffffffffffffffffff:\tret",
            "0: <",
            "0:\tj\t <a>",
        ] {
            reader.line(junk).unwrap();
        }
        reader.finish().unwrap();
    }

    #[test]
    fn every_architecture_has_sound_rules() {
        for arch in arch::all().unwrap() {
            Reader::new(&arch.stack).unwrap();
        }
    }
}
