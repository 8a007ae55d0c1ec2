package main

import (
	"fmt"
	"strings"
)

// backendCAs reads the values of --backend-ca-file: name=file for one backend,
// a file alone for all others.
func backendCAs(values []string) (byName map[string]string, all string, err error) {
	byName = map[string]string{}
	for _, s := range values {
		if !strings.Contains(s, "=") {
			if all != "" {
				return nil, "", fmt.Errorf("--backend-ca-file %q: %s is for all backends already", s, all)
			}
			all = s
			continue
		}
		name, file, err := parsePair("backend-ca-file", s)
		if err != nil {
			return nil, "", err
		}
		byName[name] = file
	}
	return byName, all, nil
}
