//! Expressions over named numbers: `rr_80k >= 1.1 * rr_64k`, `100 * (after - before) / before`.
//!
//! Numbers, names, `+ - * /`, parentheses, the functions `min max mean sum count p50 p90 p99` of a name, and
//! comparisons. A name is a measurement or a counter (`gve0.tx_packets`); a bare name with several values
//! stands for their mean.

use std::ops::Range;

/// What is wrong with an expression, and where in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpressionError {
    /// What.
    pub(crate) message: String,
    /// Where.
    pub(crate) span: Range<usize>,
}

/// A number to be worked out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    /// A constant.
    Number(f64),
    /// A named number.
    Name(String),
    /// A function of the values of a name.
    Function(Function, String),
    /// `-x`.
    Negative(Box<Expression>),
    /// Two numbers and what is done with them: `+`, `-`, `*`, `/`.
    Binary(char, Box<Expression>, Box<Expression>),
}

/// A function of all values of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Arithmetic mean.
    Mean,
    /// Sum.
    Sum,
    /// How many.
    Count,
    /// The smallest value that this many percent of all are not above.
    Percentile(u8),
}

/// Two expressions and how they must compare.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Relation {
    left: Expression,
    comparison: &'static str,
    right: Expression,
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// Says what is wrong, and where in `text`.
    pub(crate) fn parse(text: &str) -> Result<Expression, ExpressionError> {
        let mut parser = Parser::new(text);
        let expression = parser.sum()?;
        parser.end()?;
        Ok(expression)
    }

    /// The names in it.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Expression::Number(_) => Vec::new(),
            Expression::Name(name) | Expression::Function(_, name) => vec![name],
            Expression::Negative(of) => of.names(),
            Expression::Binary(_, left, right) => [left.names(), right.names()].concat(),
        }
    }

    /// Its value, where `values` gives all values of a name.
    ///
    /// # Errors
    /// Names the name without a value, or a division by zero.
    pub(crate) fn evaluate(&self, values: &dyn Fn(&str) -> Option<Vec<f64>>) -> Result<f64, String> {
        let known = |name: &str| {
            values(name).filter(|values| !values.is_empty()).ok_or_else(|| format!("{name} was not measured"))
        };
        Ok(match self {
            Expression::Number(number) => *number,
            Expression::Name(name) => Function::Mean.of(&known(name)?),
            Expression::Function(function, name) => function.of(&known(name)?),
            Expression::Negative(of) => -of.evaluate(values)?,
            Expression::Binary(operator, left, right) => {
                let (left, right) = (left.evaluate(values)?, right.evaluate(values)?);
                match operator {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    _ if right == 0.0 => return Err(format!("{left} is divided by zero")),
                    _ => left / right,
                }
            }
        })
    }
}

impl Function {
    fn named(name: &str) -> Option<Function> {
        Some(match name {
            "min" => Function::Min,
            "max" => Function::Max,
            "mean" => Function::Mean,
            "sum" => Function::Sum,
            "count" => Function::Count,
            "p50" => Function::Percentile(50),
            "p90" => Function::Percentile(90),
            "p99" => Function::Percentile(99),
            _ => return None,
        })
    }

    /// Of `values`, of which there is at least one.
    fn of(self, values: &[f64]) -> f64 {
        let sum: f64 = values.iter().sum();
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        match self {
            Function::Min => at(0),
            Function::Max => at(sorted.len().wrapping_sub(1)),
            Function::Mean => sum / values.len() as f64,
            Function::Sum => sum,
            Function::Count => values.len() as f64,
            Function::Percentile(percent) => {
                at((usize::from(percent) * sorted.len()).div_ceil(100).saturating_sub(1))
            }
        }
    }
}

impl Relation {
    /// Reads a relation.
    ///
    /// # Errors
    /// Says what is wrong, and where in `text`.
    pub(crate) fn parse(text: &str) -> Result<Relation, ExpressionError> {
        let mut parser = Parser::new(text);
        let left = parser.sum()?;
        let comparison = parser.comparison()?;
        let right = parser.sum()?;
        parser.end()?;
        Ok(Relation { left, comparison, right })
    }

    /// The names in it.
    pub(crate) fn names(&self) -> Vec<&str> {
        [self.left.names(), self.right.names()].concat()
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// When it does not: says what both sides are.
    pub(crate) fn check(&self, values: &dyn Fn(&str) -> Option<Vec<f64>>) -> Result<(), String> {
        let (left, right) = (self.left.evaluate(values)?, self.right.evaluate(values)?);
        let holds = match self.comparison {
            ">=" => left >= right,
            "<=" => left <= right,
            ">" => left > right,
            "<" => left < right,
            "!=" => left != right,
            _ => left == right,
        };
        if holds { Ok(()) } else { Err(format!("the left side is {left}, the right side {right}")) }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        Parser { text, at: 0, depth: 0 }
    }

    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, ExpressionError> {
        let length = self.text[self.at..].chars().next().map_or(0, char::len_utf8);
        Err(ExpressionError { message: message.into(), span: self.at..self.at + length })
    }

    fn end(&mut self) -> Result<(), ExpressionError> {
        let rest = self.rest();
        if rest.is_empty() { Ok(()) } else { self.error(format!("{rest:?} is not expected here")) }
    }

    fn comparison(&mut self) -> Result<&'static str, ExpressionError> {
        match COMPARISONS.into_iter().find(|token| self.take(token)) {
            Some(token) => Ok(token),
            None => {
                self.rest();
                self.error(format!("one of {} is expected here", COMPARISONS.join(" ")))
            }
        }
    }

    fn sum(&mut self) -> Result<Expression, ExpressionError> {
        let mut left = self.product()?;
        while let Some(operator) = ['+', '-'].into_iter().find(|operator| self.take(&operator.to_string())) {
            left = Expression::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, ExpressionError> {
        let mut left = self.factor()?;
        while let Some(operator) = ['*', '/'].into_iter().find(|operator| self.take(&operator.to_string())) {
            left = Expression::Binary(operator, Box::new(left), Box::new(self.factor()?));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Expression, ExpressionError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.error("the expression is nested too deeply");
        }
        let result = if self.take("-") {
            Ok(Expression::Negative(Box::new(self.factor()?)))
        } else if self.take("(") {
            let inner = self.sum()?;
            self.close()?;
            Ok(inner)
        } else {
            self.atom()
        };
        self.depth -= 1;
        result
    }

    fn close(&mut self) -> Result<(), ExpressionError> {
        if self.take(")") { Ok(()) } else { self.error("a closing parenthesis is expected here") }
    }

    fn atom(&mut self) -> Result<Expression, ExpressionError> {
        let word = self.word();
        if word.is_empty() {
            return self.error("a number or a name is expected here");
        }
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            let Ok(number) = word.parse() else { return self.error(format!("{word} is not a number")) };
            self.at += word.len();
            return Ok(Expression::Number(number));
        }
        let Some(function) = Function::named(word) else {
            let before = self.at;
            self.at += word.len();
            if !self.take("(") {
                return Ok(Expression::Name(word.to_owned()));
            }
            self.at = before;
            return self.error(format!("there is no function {word}; there are {FUNCTIONS}"));
        };
        self.at += word.len();
        if !self.take("(") {
            return Ok(Expression::Name(word.to_owned()));
        }
        let name = self.word();
        if !name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            return self.error(format!("{word} is a function of a name"));
        }
        self.at += name.len();
        self.close()?;
        Ok(Expression::Function(function, name.to_owned()))
    }

    /// The number or name that comes next.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let number = rest.starts_with(|first: char| first.is_ascii_digit());
        let belongs =
            |c: char| c.is_ascii_digit() || c == '.' || (!number && (c.is_ascii_alphanumeric() || c == '_'));
        &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())]
    }
}

const COMPARISONS: [&str; 6] = [">=", "<=", "==", "!=", ">", "<"];
const FUNCTIONS: &str = "min, max, mean, sum, count, p50, p90 and p99";
const DEEPEST: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(name: &str) -> Option<Vec<f64>> {
        match name {
            "a" => Some(vec![2.0]),
            "runs" => Some((1..=10).map(f64::from).collect()),
            "gve0.tx_packets" => Some(vec![100.0]),
            _ => None,
        }
    }

    fn value(text: &str) -> Result<f64, String> {
        Expression::parse(text).map_err(|error| error.message)?.evaluate(&values)
    }

    #[test]
    fn arithmetic() {
        assert_eq!(value("1 + 2 * 3"), Ok(7.0));
        assert_eq!(value("(1 + 2) * -a"), Ok(-6.0));
        assert_eq!(value("10 - 2 - 3"), Ok(5.0));
        assert_eq!(value("100 * (gve0.tx_packets - a) / a"), Ok(4900.0));
        assert_eq!(value("runs"), Ok(5.5));
        assert_eq!(value("p90(runs) - min(runs)"), Ok(8.0));
        assert_eq!(value("p99(runs) + count(runs) + sum(runs) + max(runs)"), Ok(85.0));
        assert_eq!(value("b + 1"), Err("b was not measured".into()));
        assert_eq!(value("1 / (a - a)"), Err("1 is divided by zero".into()));
    }

    #[test]
    fn relations() {
        let check = |text: &str| Relation::parse(text).unwrap().check(&values);
        assert_eq!(check("max(runs) >= 1.1 * a"), Ok(()));
        assert_eq!(check("a == 2"), Ok(()));
        assert_eq!(check("a > 1.5 * a"), Err("the left side is 2, the right side 3".into()));
    }

    #[test]
    fn mistakes_say_where_they_are() {
        let error = |text: &str| {
            let error = Relation::parse(text).unwrap_err();
            (error.message, error.span.start)
        };
        assert_eq!(error("a 1.1 * b"), ("one of >= <= == != > < is expected here".into(), 2));
        assert_eq!(error("a >= 1.1 *"), ("a number or a name is expected here".into(), 10));
        assert_eq!(error("a >= (b"), ("a closing parenthesis is expected here".into(), 7));
        assert_eq!(error("a >= b c"), ("\"c\" is not expected here".into(), 7));
        assert_eq!(error("a >= 1.2.3"), ("1.2.3 is not a number".into(), 5));
        assert!(error("median(a) >= 1").0.starts_with("there is no function median; there are min"));
        assert_eq!(error(&"(".repeat(100)).0, "the expression is nested too deeply");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_within_itself(text in "[-a-z0-9+*/()<>=. é]{0,40}") {
            if let Err(error) = Relation::parse(&text) {
                prop_assert!(text.get(error.span).is_some());
            }
        }

        #[test]
        fn sums_and_products_are_those_of_the_host(a in 0u32..1000, b in 0u32..1000, c in 1u32..1000) {
            let (x, y, z) = (f64::from(a), f64::from(b), f64::from(c));
            prop_assert_eq!(value(&format!("{a} + {b} * {c}")), Ok(x + y * z));
            prop_assert_eq!(value(&format!("({a} - {b}) / {c}")), Ok((x - y) / z));
        }
    }
}
