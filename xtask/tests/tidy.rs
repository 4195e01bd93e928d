//! The house rules hold for this tree: `cargo xtask tidy` as a test.
use xtask::{
    tidy::{Tree, Weight, check},
    workspace,
};

#[test]
fn the_tree_is_tidy() -> anyhow::Result<()> {
    let tree = Tree::read(workspace::root())?;
    let found = check(&tree);
    let faults = found
        .iter()
        .filter(|problem| problem.weight == Weight::Fault);
    let faults: Vec<String> = faults.map(ToString::to_string).collect();
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    Ok(())
}
