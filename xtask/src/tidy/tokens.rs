//! A file's tokens as one flat list with lines, so that rules read a few neighbours instead of a tree.
//!
//! Comments are gone and strings are literals, so no rule mistakes a word in prose for code.
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Word(String),
    Sign(char),
    Open(Delimiter),
    Close(Delimiter),
    Literal(String),
}

/// A token and the line it stands on, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: usize,
}

impl Token {
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(own) if own == word)
    }

    pub(super) fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }

    pub(super) fn opens(&self, delimiter: Delimiter) -> bool {
        self.kind == Kind::Open(delimiter)
    }

    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// The flat list of a stream; invisible groups vanish.
pub(super) fn flatten(stream: TokenStream) -> Vec<Token> {
    let mut tokens = Vec::new();
    push_all(stream, &mut tokens);
    tokens
}

fn push_all(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let delimiter = group.delimiter();
                let close = group.span_close().start().line;
                tokens.push(Token {
                    kind: Kind::Open(delimiter),
                    line,
                });
                push_all(group.stream(), tokens);
                tokens.push(Token {
                    kind: Kind::Close(delimiter),
                    line: close,
                });
            }
            TokenTree::Ident(word) => {
                tokens.push(Token {
                    kind: Kind::Word(word.to_string()),
                    line,
                });
            }
            TokenTree::Punct(sign) => {
                tokens.push(Token {
                    kind: Kind::Sign(sign.as_char()),
                    line,
                });
            }
            TokenTree::Literal(literal) => {
                tokens.push(Token {
                    kind: Kind::Literal(literal.to_string()),
                    line,
                });
            }
        }
    }
}

/// The index of the token that closes the group opened at `open`.
pub(super) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) if depth == 1 => return index,
            Kind::Close(_) => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The insides of every attribute (`#[…]` and `#![…]`), each with the line of its `#`.
pub(super) fn attributes(tokens: &[Token]) -> impl Iterator<Item = (usize, &[Token])> {
    tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| token.is_sign('#'))
        .filter_map(|(at, token)| {
            let inner = tokens.get(at + 1)?.is_sign('!');
            let open = at + 1 + usize::from(inner);
            tokens.get(open)?.opens(Delimiter::Bracket).then_some(())?;
            Some((token.line, tokens.get(open + 1..closing(tokens, open))?))
        })
}
