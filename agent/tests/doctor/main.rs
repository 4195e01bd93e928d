//! The doctor on machines made of files: whole, empty, foreign, and with one thing wrong at a time.

mod cases;
mod command;
mod machine;
mod robust;
mod trials;
