//! How long a function may be and how much it may be told.
use syn::visit::{self, Visit};

use super::{Problem, Tree};

/// Lines from `fn` to the closing brace: advice, and the limit.
const LINES: (usize, usize) = (40, 100);
/// Arguments, the receiver apart.
const ARGUMENTS: usize = 5;

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, rust) in tree.rust() {
        // Helpers of the kernel take what the kernel's calling convention gives them.
        let arguments = if file.path.starts_with("ebpf/") {
            usize::MAX
        } else {
            ARGUMENTS
        };
        let mut functions = Functions {
            path: &file.path,
            arguments,
            in_trait: false,
            problems: Vec::new(),
        };
        functions.visit_file(&rust.syntax);
        problems.append(&mut functions.problems);
    }
    problems
}

struct Functions<'a> {
    path: &'a str,
    arguments: usize,
    /// Inside an implementation of a trait, which dictates the arguments.
    in_trait: bool,
    problems: Vec<Problem>,
}

impl Functions<'_> {
    fn judge(&mut self, signature: &syn::Signature, body: Option<&syn::Block>) {
        let name = &signature.ident;
        let first = signature.fn_token.span.start().line;
        let told = signature
            .inputs
            .iter()
            .filter(|input| matches!(input, syn::FnArg::Typed(_)));
        let told = told.count();
        if told > self.arguments && !self.in_trait {
            let message = format!("`{name}` takes {told} arguments, and {ARGUMENTS} are the limit");
            let remedy = "give what belongs together a name: a struct";
            self.problems
                .push(Problem::fault(self.path, first, message, remedy));
        }
        let Some(body) = body else { return };
        let lines = body.brace_token.span.close().start().line + 1 - first;
        let remedy = "name its steps as functions of their own";
        if lines > LINES.1 {
            let message = format!("`{name}` has {lines} lines, and {} are the limit", LINES.1);
            self.problems
                .push(Problem::fault(self.path, first, message, remedy));
        } else if lines > LINES.0 {
            let message = format!("`{name}` has {lines} lines, and {} are plenty", LINES.0);
            self.problems
                .push(Problem::advice(self.path, first, message, remedy));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        let outer = std::mem::replace(&mut self.in_trait, node.trait_.is_some());
        visit::visit_item_impl(self, node);
        self.in_trait = outer;
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        // A function inside a method is free again.
        let outer = std::mem::replace(&mut self.in_trait, false);
        self.judge(&node.sig, Some(&node.block));
        visit::visit_item_fn(self, node);
        self.in_trait = outer;
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.judge(&node.sig, Some(&node.block));
        visit::visit_impl_item_fn(self, node);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        self.judge(&node.sig, node.default.as_ref());
        visit::visit_trait_item_fn(self, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::samples::{check_advice, check_file, tree_of};

    const PATH: &str = "agent/src/a.rs";
    const SIX: &str = "a: u8, b: u8, c: u8, d: u8, e: u8, f: u8";

    fn function_of(lines: usize) -> String {
        format!(
            "//! A.\n\n/// F.\nfn f() {{\n{}}}\n",
            "g();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn long_functions_are_named_and_longer_ones_fail() {
        check_file(check, PATH, &function_of(100), &[]);
        check_file(
            check,
            PATH,
            &function_of(101),
            &[(PATH, 4, "`f` has 101 lines")],
        );
        check_advice(check, &tree_of(&[(PATH, &function_of(40))], []), &[]);
        let named = [(PATH, 4, "`f` has 41 lines")];
        check_advice(check, &tree_of(&[(PATH, &function_of(41))], []), &named);
    }

    #[test]
    fn six_arguments_are_one_too_many() {
        let free = format!("//! A.\nfn f({SIX}) {{}}\n");
        check_file(check, PATH, &free, &[(PATH, 2, "6 arguments")]);
        check_file(check, "ebpf/src/a.rs", &free, &[]);
        let five = "a: u8, b: u8, c: u8, d: u8, e: u8";
        check_file(check, PATH, &format!("//! A.\nfn f({five}) {{}}\n"), &[]);
        check_file(
            check,
            PATH,
            &format!("//! A.\nimpl A {{ fn f(&self, {five}) {{}} }}\n"),
            &[],
        );
    }

    #[test]
    fn a_trait_answers_for_its_arguments_once() {
        let defined = format!("//! A.\ntrait A {{\nfn f(&self, {SIX});\n}}\n");
        check_file(check, PATH, &defined, &[(PATH, 3, "6 arguments")]);
        check_file(
            check,
            PATH,
            &format!("//! A.\nimpl A for B {{ fn f(&self, {SIX}) {{}} }}\n"),
            &[],
        );
        let inner = format!("//! A.\nimpl A for B {{\nfn f() {{\nfn g({SIX}) {{}}\n}}\n}}\n");
        check_file(check, PATH, &inner, &[(PATH, 4, "`g`")]);
    }
}
