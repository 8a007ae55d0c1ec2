package rules

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NoParent rejects a file path with an element "..".
func NoParent(file string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(file, "/"), "..") {
		return field.ErrorList{field.Invalid(at, file, "must not contain '..'")}
	}
	return nil
}

// RelativePath requires a relative file path without an element "..".
func RelativePath(file string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(file) {
		errs = append(errs, field.Invalid(at, file, "must be a relative path"))
	}
	return append(errs, NoParent(file, at)...)
}
