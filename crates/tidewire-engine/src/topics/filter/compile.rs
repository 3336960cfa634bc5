//! Compilation of a filter's document into a program.

use super::automaton::Automaton;
use super::automaton::REGEX_TEXT_BYTES_MAX;
use super::condition::{Condition, Expression, Options, Relation};
use super::constant::{Constant, SEARCHED_BYTES_MAX};
use super::paths::Paths;
use crate::limits::work::cost;
use memchr::memmem::Finder;
use serde_json::{Map, Value};
use tidewire_wire::json::{Found, Number};

/// The fields that a filter looks at, and what must hold for them.
#[derive(Debug)]
pub(super) struct Program {
    paths: Paths,
    slots: usize,
    searches: usize,
    regexes: usize,
    /// The memory of the automata, in bytes.
    automata_bytes: usize,
    expression: Expression,
}

/// Why a document is not a filter. It is the fault of whoever wrote the document, and a retry does
/// not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", if path.is_empty() { "the filter" } else { path.as_str() })]
pub struct InvalidFilter {
    /// The place in the document, such as `$or[1].price.$gt`; empty for the document as a whole. A
    /// long name in it is cut.
    pub path: String,
    /// The fault at that place.
    pub problem: FilterProblem,
}

/// The fault of a place in a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterProblem {
    /// A document, or what follows `$not`, is not an object.
    #[error("an object is needed")]
    NotAnObject,
    /// The value of `$and`, `$or`, `$in` or `$nin` is not an array.
    #[error("an array is needed")]
    NotAnArray,
    /// The value of `$and` or `$or`, or of `$not` after a path, is empty.
    #[error("at least one document or operator is needed")]
    Nothing,
    /// The value of an operator of strings is not a string.
    #[error("a string is needed")]
    NotAString,
    /// The value of `$gt`, `$gte`, `$lt` or `$lte` is neither a number nor a string.
    #[error("a number or a string is needed")]
    NoOrder,
    /// The value of `$exists` is not a boolean.
    #[error("`true` or `false` is needed")]
    NotABool,
    /// A name that begins with `$` and is not an operator of this place.
    #[error("there is no such operator here")]
    UnknownOperator,
    /// An object has both operators and other names.
    #[error("operators and other names must not be mixed")]
    MixedNames,
    /// A path has an empty name, or more than 16.
    #[error("a path has 1 to {PATH_SEGMENTS_MAX} names with dots between them, none of them empty")]
    BadPath,
    /// The regular expression is not one, or is too large.
    #[error("not a regular expression that can be used: {0}")]
    BadRegex(String),
    /// The document has more than 16 levels.
    #[error("more than {NESTING_MAX} levels of nesting")]
    TooDeep,
    /// The document has more than 64 KiB of text.
    #[error("more than {SOURCE_BYTES_MAX} bytes of text")]
    TooLong,
    /// The document has more than 128 conditions.
    #[error("more than {CONDITIONS_MAX} conditions")]
    TooManyConditions,
    /// The document has more than 16 searches, or more than 4 regular expressions.
    #[error("more than {SEARCHES_MAX} searches, or {REGEXES_MAX} regular expressions")]
    TooManySearches,
    /// A list has more than 1,024 values.
    #[error("more than {LIST_VALUES_MAX} values")]
    TooManyValues,
}

type CompileResult<T> = Result<T, InvalidFilter>;

impl Program {
    /// Compiles a document whose nesting is checked, as [`canonical`] does.
    pub(super) fn compile(document: &Value) -> CompileResult<Self> {
        let mut compiler = Compiler::default();
        let expression = compiler.document(document)?;
        Ok(Self {
            paths: compiler.paths,
            slots: compiler.slots,
            searches: compiler.searches - compiler.regexes,
            regexes: compiler.regexes,
            automata_bytes: compiler.automata_bytes,
            expression,
        })
    }

    /// How many fields the program looks at.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// The largest cost of [`Self::run`], in units of [work](crate::limits::work).
    pub(super) fn match_cost(&self, payload_bytes: usize) -> u64 {
        let searched = payload_bytes.min(SEARCHED_BYTES_MAX);
        let matched = payload_bytes.min(REGEX_TEXT_BYTES_MAX);
        let steps = payload_bytes / 2
            + self.slots * SLOT_STEPS
            + self.searches * searched
            + self.regexes * matched * REGEX_STEPS;
        (FILTER_STEPS + steps) as u64
    }

    /// Its memory besides its source, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.automata_bytes + self.slots * SLOT_BYTES
    }

    /// The cost of its compilation, in units of [work](crate::limits::work).
    pub(super) fn compile_cost(&self, source_bytes: usize) -> u64 {
        source_bytes as u64 * cost::FILTER_SOURCE_BYTE
            + self.regexes as u64 * cost::FILTER_REGEX
            + self.automata_bytes as u64 * cost::FILTER_AUTOMATON_BYTE
    }

    /// Whether the filter matches the payload. `found` has at least as many places as there are
    /// fields, all missing.
    pub(super) fn run<'a>(&self, payload: &'a [u8], found: &mut [Found<'a>]) -> bool {
        if self.slots > 0 {
            self.paths.read(payload, found);
        }
        self.expression.holds(found)
    }
}

/// The document as text, with the members of objects in the order of their names. Fails if it is
/// nested too deep or too long.
pub(super) fn canonical(document: &Value) -> CompileResult<String> {
    let mut text = String::new();
    write_canonical(document, NESTING_MAX, &mut text).map_err(|problem| InvalidFilter {
        path: String::new(),
        problem,
    })?;
    Ok(text)
}

fn write_canonical(value: &Value, levels: usize, text: &mut String) -> Result<(), FilterProblem> {
    let is_nested = value.is_array() || value.is_object();
    let levels = levels
        .checked_sub(usize::from(is_nested))
        .ok_or(FilterProblem::TooDeep)?;
    match value {
        Value::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                text.push_str(if index > 0 { "," } else { "" });
                write_canonical(element, levels, text)?;
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            // The map has another order if a crate of the build asks for it.
            members.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                text.push_str(if index > 0 { "," } else { "" });
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_canonical(value, levels, text)?;
            }
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
    if text.len() > SOURCE_BYTES_MAX {
        Err(FilterProblem::TooLong)
    } else {
        Ok(())
    }
}

#[derive(Default)]
struct Compiler {
    paths: Paths,
    slots: usize,
    conditions: usize,
    searches: usize,
    regexes: usize,
    automata_bytes: usize,
}

impl Compiler {
    fn document(&mut self, document: &Value) -> CompileResult<Expression> {
        let members = document.as_object().ok_or(FilterProblem::NotAnObject)?;
        let mut all = Vec::with_capacity(members.len());
        for (name, value) in members {
            let expression = match name.as_str() {
                "$and" => self.documents(value).map(Expression::All),
                "$or" => self.documents(value).map(Expression::Any),
                "$not" => self
                    .document(value)
                    .map(|one| Expression::Not(Box::new(one))),
                name if name.starts_with('$') => Err(FilterProblem::UnknownOperator.into()),
                path => self.field(path, value),
            };
            all.push(expression.map_err(|error| error.below(name))?);
        }
        Ok(all_of(all))
    }

    fn documents(&mut self, documents: &Value) -> CompileResult<Vec<Expression>> {
        let documents = documents.as_array().ok_or(FilterProblem::NotAnArray)?;
        if documents.is_empty() {
            return Err(FilterProblem::Nothing.into());
        }
        let compile = |(index, document)| {
            self.document(document)
                .map_err(|error| error.below(&format!("[{index}]")))
        };
        documents.iter().enumerate().map(compile).collect()
    }

    fn field(&mut self, path: &str, value: &Value) -> CompileResult<Expression> {
        let mut names = path.split('.');
        if names.clone().count() > PATH_SEGMENTS_MAX || names.any(str::is_empty) {
            return Err(FilterProblem::BadPath.into());
        }
        // Each path has a condition, so that there are never more of them than conditions.
        let slot = self.paths.slot(path, self.slots);
        self.slots = self.slots.max(slot + 1);
        match value.as_object() {
            Some(members) if members.keys().any(|name| name.starts_with('$')) => {
                self.operators(slot, members)
            }
            _ => self.operator(slot, "$eq", value),
        }
    }

    fn operators(
        &mut self,
        slot: usize,
        members: &Map<String, Value>,
    ) -> CompileResult<Expression> {
        let mut all = Vec::with_capacity(members.len());
        for (name, operand) in members {
            let expression = self.operator(slot, name, operand);
            all.push(expression.map_err(|error| error.below(name))?);
        }
        Ok(all_of(all))
    }

    fn operator(&mut self, slot: usize, name: &str, operand: &Value) -> CompileResult<Expression> {
        if name == "$not" {
            let members = operand.as_object().ok_or(FilterProblem::NotAnObject)?;
            if members.is_empty() {
                return Err(FilterProblem::Nothing.into());
            }
            return Ok(Expression::Not(Box::new(self.operators(slot, members)?)));
        }
        self.conditions += 1;
        if self.conditions > CONDITIONS_MAX {
            return Err(FilterProblem::TooManyConditions.into());
        }
        let condition = match name {
            "$eq" | "$ne" => Condition::Equal(self.constant(operand)?),
            "$in" | "$nin" => Condition::OneOf(self.options(operand)?),
            "$gt" => order(Relation::Greater, operand)?,
            "$gte" => order(Relation::GreaterOrEqual, operand)?,
            "$lt" => order(Relation::Less, operand)?,
            "$lte" => order(Relation::LessOrEqual, operand)?,
            "$exists" => Condition::Exists(operand.as_bool().ok_or(FilterProblem::NotABool)?),
            "$startswith" => Condition::StartsWith(text(operand)?.as_bytes().into()),
            "$endswith" => Condition::EndsWith(text(operand)?.as_bytes().into()),
            "$contains" => self.contains(operand)?,
            "$regex" => self.regex(operand)?,
            name if name.starts_with('$') => return Err(FilterProblem::UnknownOperator.into()),
            _ => return Err(FilterProblem::MixedNames.into()),
        };
        let expression = Expression::Field(slot, condition);
        let is_contrary = matches!(name, "$ne" | "$nin");
        Ok(if is_contrary {
            Expression::Not(Box::new(expression))
        } else {
            expression
        })
    }

    /// The comparison with an array or object counts as a search: of members with the same name it
    /// can have to pass over very many.
    fn constant(&mut self, value: &Value) -> CompileResult<Constant> {
        if value.is_array() || value.is_object() {
            self.count_search()?;
        }
        Ok(Constant::new(value))
    }

    fn options(&mut self, operand: &Value) -> CompileResult<Options> {
        let values = operand.as_array().ok_or(FilterProblem::NotAnArray)?;
        if values.len() > LIST_VALUES_MAX {
            return Err(FilterProblem::TooManyValues.into());
        }
        let constants: CompileResult<Vec<_>> =
            values.iter().map(|value| self.constant(value)).collect();
        Ok(Options::new(constants?))
    }

    fn contains(&mut self, operand: &Value) -> CompileResult<Condition> {
        self.count_search()?;
        let needle = operand
            .as_str()
            .map(|text| Box::new(Finder::new(text).into_owned()));
        Ok(Condition::Contains {
            element: Constant::new(operand),
            needle,
        })
    }

    fn regex(&mut self, operand: &Value) -> CompileResult<Condition> {
        self.count_search()?;
        self.regexes += 1;
        if self.regexes > REGEXES_MAX {
            return Err(FilterProblem::TooManySearches.into());
        }
        let automaton = Automaton::new(text(operand)?).map_err(FilterProblem::BadRegex)?;
        self.automata_bytes += automaton.bytes();
        Ok(Condition::Matches(Box::new(automaton)))
    }

    fn count_search(&mut self) -> CompileResult<()> {
        self.searches += 1;
        if self.searches > SEARCHES_MAX {
            return Err(FilterProblem::TooManySearches.into());
        }
        Ok(())
    }
}

fn all_of(mut all: Vec<Expression>) -> Expression {
    match all.pop() {
        Some(only) if all.is_empty() => only,
        last => {
            all.extend(last);
            Expression::All(all)
        }
    }
}

fn order(relation: Relation, operand: &Value) -> CompileResult<Condition> {
    let number = operand.as_number().and_then(Number::from_json);
    let by_number = number.map(|number| Condition::NumberIs(relation, number));
    let by_text = || {
        Some(Condition::TextIs(
            relation,
            operand.as_str()?.as_bytes().into(),
        ))
    };
    Ok(by_number.or_else(by_text).ok_or(FilterProblem::NoOrder)?)
}

fn text(operand: &Value) -> CompileResult<&str> {
    Ok(operand.as_str().ok_or(FilterProblem::NotAString)?)
}

impl From<FilterProblem> for InvalidFilter {
    fn from(problem: FilterProblem) -> Self {
        Self {
            path: String::new(),
            problem,
        }
    }
}

impl InvalidFilter {
    /// The same, as seen from one level further out.
    fn below(mut self, name: &str) -> Self {
        let is_plain = self.path.is_empty() || self.path.starts_with('[');
        self.path.insert_str(0, if is_plain { "" } else { "." });
        let shown: String = name.chars().take(NAME_SHOWN_CHARS_MAX).collect();
        self.path.insert_str(0, &shown);
        self
    }
}

const NESTING_MAX: usize = 16;
const SOURCE_BYTES_MAX: usize = 64 * 1024;
/// The tree of paths marks what it has seen with one bit each.
const CONDITIONS_MAX: usize = u128::BITS as usize;
const SEARCHES_MAX: usize = 16;
const REGEXES_MAX: usize = 4;
const LIST_VALUES_MAX: usize = 1024;
const PATH_SEGMENTS_MAX: usize = 16;
/// The cost of an evaluation in any case, for each field, and for each byte of a text and a regular
/// expression, in nanoseconds.
const FILTER_STEPS: usize = 150;
const SLOT_STEPS: usize = 20;
const REGEX_STEPS: usize = 3;
/// The size of a field and its condition, in bytes.
const SLOT_BYTES: usize = 256;
/// A longer name is cut in the place that an error gives.
const NAME_SHOWN_CHARS_MAX: usize = 64;
