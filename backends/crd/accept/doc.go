// Package accept tells from the bytes of a custom resource alone, without
// decoding them, that nobody has to look any closer: that bringing the object
// in line with its schema would leave it as it is, and that its schema is
// content with it.
//
// Runs in: crd.
//
// Upstream's way there is to decode an object into maps, to write its metadata
// into a struct and back, to prune, to fill in defaults and to make a tree of
// validators for every value. Nearly all objects come out as they went in. A
// schema compiled by [Compile] walks the bytes instead.
//
// Decisions:
//   - It never rejects. What it does not understand, or what is wrong, is
//     answered with [Unsure], and upstream's packages decide and word the
//     error. So a construct may be left out here at the price of speed, never
//     at the price of an answer. Left out are: numbers with an exponent and
//     those that are whole but written as fractions, surrogate escapes, null
//     where the schema does not name it, metadata of embedded resources (as far
//     as validity goes), sets of objects, enumerations of anything but texts,
//     numbers and booleans, and what lies deeper than maxDepth.
//   - It is compiled from the definition's own schema, not from the structural
//     form: validators are made from the former, and the latter is a view of it
//     that drops parts of what stands under "not" and "oneOf".
//   - There are two walks. The first checks the text and the fixed point and
//     stops at the first doubt. The second knows the text to be sound, and is
//     made of answers with three values: under "oneOf" and "not", certainly
//     invalid is worth as much as certainly valid.
//   - Limits, formats and ranges are judged by the functions that upstream's
//     validators call, patterns by the same regular expressions.
//   - What is judged is often what an object was encoded as, where 1e3 has become
//     1000. Upstream judges the number that was sent, with other arithmetic for
//     what is not an integer of Go: it takes no 1e17 for an integer, and 0 is not
//     below a minimum of 0.5 but 0.0 is. So a whole number is valid if it is by
//     both.
//   - CEL rules are no part of it: they need decoded values.
package accept
