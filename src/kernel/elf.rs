//! Sizes and identity of a kernel, read from its ELF file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use fs_err as fs;
use object::elf::{SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE};
use object::{Object, ObjectSection, SectionFlags, SectionKind};
use serde::{Deserialize, Serialize};

/// Sizes of a `vmlinux` in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The file.
    pub file: u64,
    /// Code and read-only data, as binutils' `size` adds them up.
    pub text: u64,
    /// Writable data with content.
    pub data: u64,
    /// Writable data without content.
    pub bss: u64,
    /// Every allocated section.
    pub sections: BTreeMap<String, u64>,
}

/// What an ELF file tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfFacts {
    /// Its sizes.
    pub sizes: Sizes,
    /// GNU build ID in lower-case hexadecimal digits, where it has one.
    pub build_id: Option<String>,
}

/// Reads an ELF file's sizes and build ID.
///
/// Text, data and bss follow the Berkeley format of binutils' `size`: an
/// allocated section is text if executable or read-only, else data if it has
/// content in the file, else bss (`berkeley_sum` in binutils' size.c).
///
/// # Errors
/// It cannot be read or is no ELF file.
pub fn read(path: &Path) -> anyhow::Result<ElfFacts> {
    let bytes = fs::read(path)?;
    let file =
        object::File::parse(&*bytes).with_context(|| format!("{}: not an ELF file", path.display()))?;
    let mut sizes = Sizes { file: bytes.len() as u64, text: 0, data: 0, bss: 0, sections: BTreeMap::new() };
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        if sh_flags & u64::from(SHF_ALLOC) == 0 {
            continue;
        }
        let read_only = sh_flags & u64::from(SHF_WRITE) == 0;
        let executable = sh_flags & u64::from(SHF_EXECINSTR) != 0;
        let empty = matches!(section.kind(), SectionKind::UninitializedData | SectionKind::UninitializedTls);
        let sum = match (executable || read_only, empty) {
            (true, _) => &mut sizes.text,
            (false, false) => &mut sizes.data,
            (false, true) => &mut sizes.bss,
        };
        *sum += section.size();
        let name = section.name().unwrap_or("?").to_owned();
        *sizes.sections.entry(name).or_default() += section.size();
    }
    let build_id = file.build_id().ok().flatten().map(hex);
    Ok(ElfFacts { sizes, build_id })
}

/// Lower-case hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The GNU build ID in the raw content of an ELF note section, such as the
/// running kernel shows in `/sys/kernel/notes`.
pub fn build_id_of_notes(notes: &[u8]) -> Option<String> {
    const GNU_BUILD_ID: u32 = 3;
    let word = |at: usize| notes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let padded = |n: u32| (n as usize).checked_add(3).map(|n| n & !3);
    let mut at = 0;
    while let (Some(name_len), Some(desc_len), Some(kind)) = (word(at), word(at + 4), word(at + 8)) {
        let name_at = at + 12;
        let desc_at = name_at.checked_add(padded(name_len)?)?;
        if kind == GNU_BUILD_ID && notes.get(name_at..name_at + 4) == Some(b"GNU\0") {
            return notes.get(desc_at..desc_at.checked_add(desc_len as usize)?).map(hex);
        }
        at = desc_at.checked_add(padded(desc_len)?)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [name.len() as u32, desc.len() as u32, kind] {
            out.extend(word.to_le_bytes());
        }
        for part in [name, desc] {
            out.extend(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    #[test]
    fn build_id_is_found_among_other_notes() {
        let mut notes = note(b"Linux\0", 0x101, &[1, 2, 3]);
        notes.extend(note(b"GNU\0", 3, &[0xab, 0x01]));
        assert_eq!(build_id_of_notes(&notes).unwrap(), "ab01");
    }

    #[test]
    fn hostile_notes_are_no_build_id() {
        assert_eq!(build_id_of_notes(&[]), None);
        assert_eq!(build_id_of_notes(&[0xff; 64]), None);
        let cut = &note(b"GNU\0", 3, &[1; 20])[..20];
        assert_eq!(build_id_of_notes(cut), None);
    }

    #[test]
    fn text_file_is_no_elf() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hello").unwrap();
        assert!(read(file.path()).unwrap_err().to_string().contains("not an ELF file"));
    }

    /// Binutils' own figures for a program that is surely there: this test.
    #[test]
    fn sizes_equal_binutils() {
        let exe = std::env::current_exe().unwrap();
        let sizes = read(&exe).unwrap().sizes;
        let out = std::process::Command::new("size").arg(&exe).output().unwrap();
        let out = String::from_utf8(out.stdout).unwrap();
        let figures: Vec<u64> =
            out.lines().nth(1).unwrap().split_whitespace().take(3).map(|n| n.parse().unwrap()).collect();
        assert_eq!([sizes.text, sizes.data, sizes.bss], figures[..]);
        assert_eq!(sizes.file, std::fs::metadata(&exe).unwrap().len());
    }
}
