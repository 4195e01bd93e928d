//! What the kernel found of a task's stacks, as an incident has it.

use std::fmt::Write as _;

use brink_host::probe::forensics::{Frame, Stack, Stacks};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::UserFrame;

/// Addresses of the kernel stack.
pub(super) fn kernel(stacks: &Stacks) -> Field<Vec<u64>> {
    stack(&stacks.kernel, Clone::clone)
}

/// The user stack.
pub(super) fn user(stacks: &Stacks) -> Field<Vec<UserFrame>> {
    stack(&stacks.user, frame)
}

/// The kernel stack with names still to come, or why there is none.
pub(super) fn unnamed(addresses: &Field<Vec<u64>>) -> Field<Vec<String>> {
    match addresses {
        Field::Value(_) => Field::Missing(Missing::Pending),
        Field::Missing(reason) => Field::Missing(*reason),
    }
}

fn stack<F, T>(stack: &Stack<F>, each: impl Fn(&F) -> T) -> Field<Vec<T>> {
    match stack {
        Stack::Frames(frames) => Field::Value(frames.iter().map(each).collect()),
        // A task of the kernel's has no memory of a user's.
        Stack::Failed(errno) if *errno == -libc::EFAULT => Field::Missing(Missing::NotApplicable),
        Stack::Failed(errno) if *errno == -libc::EOPNOTSUPP => {
            Field::Missing(Missing::KernelLacksIt)
        }
        Stack::Failed(_) => Field::Missing(Missing::Malformed),
    }
}

fn frame(frame: &Frame) -> UserFrame {
    match *frame {
        Frame::File { build_id, offset } => UserFrame {
            build_id: Some(hexadecimal(&build_id)),
            build_id_missing: None,
            offset,
        },
        // It has looked for the file, and says no more than this.
        Frame::Address(offset) => UserFrame {
            build_id: None,
            build_id_missing: Some(Missing::KernelLacksIt),
            offset,
        },
    }
}

/// A build id of 20, 16 or 8 bytes, the shorter ones followed by zeros.
fn hexadecimal(bytes: &[u8; 20]) -> String {
    let is_blank = |from: usize| bytes[from..].iter().all(|byte| *byte == 0);
    let length = [8, 16].into_iter().find(|from| is_blank(*from));
    let shown = &bytes[..length.unwrap_or(20)];
    let mut text = String::with_capacity(40);
    for byte in shown {
        let _never_fails = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_as_long_as_they_were() {
        let check = |length: usize| {
            let mut id = [0; 20];
            id[..length].fill(0xab);
            assert_eq!(hexadecimal(&id), "ab".repeat(length));
        };
        check(20);
        check(16);
        check(8);
    }

    #[test]
    fn a_frame_without_a_file_says_why() {
        let told = |found: Frame| {
            let found = frame(&found);
            (found.build_id, found.build_id_missing)
        };
        let lacks = Some(Missing::KernelLacksIt);
        assert_eq!(told(Frame::Address(7)), (None, lacks));
        let build_id = [0xab; 20];
        let (id, missing) = told(Frame::File {
            build_id,
            offset: 7,
        });
        assert_eq!((id, missing), (Some("ab".repeat(20)), None));
    }

    #[test]
    fn a_stack_that_is_none_says_why() {
        let check = |errno, expected| {
            let found: Field<Vec<u64>> = stack(&Stack::Failed(errno), Clone::clone);
            assert_eq!(found, Field::Missing(expected));
        };
        check(-libc::EFAULT, Missing::NotApplicable);
        check(-libc::EOPNOTSUPP, Missing::KernelLacksIt);
        check(-libc::EEXIST, Missing::Malformed);
    }
}
