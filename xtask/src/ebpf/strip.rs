//! Takes out of an object what only a debugger reads; the kernel's own type information stays.
use anyhow::Context as _;
use object::{
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};

/// Names of sections that go: DWARF, the compiler's notes, and relocations that no loader of ours applies.
const GONE: [&str; 4] = [".debug_", ".rel.debug_", ".llvm_addrsig", ".rel.BTF"];

/// The object without its debug sections.
pub(super) fn debug_sections(object: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut builder = Builder::read64(object).context("reading the object")?;
    for section in &mut builder.sections {
        let name = section.name.to_string();
        section.delete = GONE.iter().any(|gone| name.starts_with(gone));
    }
    // The linker keeps the names of sections among those of symbols; the writer wants a section for them.
    let names = builder.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    builder.delete_orphans();
    let mut bytes = Vec::new();
    builder.write(&mut bytes).context("writing the object")?;
    Ok(bytes)
}
