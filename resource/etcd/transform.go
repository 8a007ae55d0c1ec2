package etcd

import (
	"bytes"
	"errors"
)

// Transformer changes values on their way to and from etcd (encryption at
// rest). aad is the full etcd key; a value must not be readable under another.
// Implementations are safe for concurrent use and do not keep or change their
// arguments.
type Transformer interface {
	ToStorage(data, aad []byte) ([]byte, error)
	// FromStorage returns the plain value. stale asks for the value to be
	// written anew at the next update, even if that changes nothing.
	FromStorage(data, aad []byte) (plain []byte, stale bool, err error)
}

// encryptedPrefix opens every value that kube-apiserver's encryption wrote.
const encryptedPrefix = "k8s:enc:"

// identity stores values as they are.
type identity struct{}

func (identity) ToStorage(data, aad []byte) ([]byte, error) { return data, nil }

func (identity) FromStorage(data, aad []byte) ([]byte, bool, error) {
	if bytes.HasPrefix(data, []byte(encryptedPrefix)) {
		return nil, false, errors.New("the value is encrypted and no key is configured")
	}
	return data, false, nil
}
