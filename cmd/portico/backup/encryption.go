package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
	"github.com/spf13/pflag"
)

// passphraseFlag is --passphrase-file.
type passphraseFlag string

func (f *passphraseFlag) add(fs *pflag.FlagSet, usage string) {
	fs.StringVar((*string)(f), "passphrase-file", "", usage)
}

// read returns the passphrase: the file without the newline at its end.
func (f passphraseFlag) read() (string, error) {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", fmt.Errorf("--passphrase-file: %s is empty", string(f))
	}
	return text, nil
}

// recipientFlags say for which keys a backup is encrypted.
type recipientFlags struct {
	passphrase passphraseFlag
	keys       []string
}

func (f *recipientFlags) add(fs *pflag.FlagSet) {
	f.passphrase.add(fs, "encrypt the backup with the passphrase in this `file`")
	fs.StringSliceVar(&f.keys, "encrypt-to", nil, "encrypt the backup for these public `keys` of age, such as age1...; separated by commas")
}

// recipients returns none if the backup is not encrypted.
func (f *recipientFlags) recipients() ([]age.Recipient, error) {
	if f.passphrase != "" && len(f.keys) > 0 {
		return nil, errors.New("--passphrase-file and --encrypt-to exclude each other")
	}
	if f.passphrase != "" {
		text, err := f.passphrase.read()
		if err != nil {
			return nil, err
		}
		recipient, err := age.NewScryptRecipient(text)
		if err != nil {
			return nil, fmt.Errorf("--passphrase-file: %w", err)
		}
		return []age.Recipient{recipient}, nil
	}
	var all []age.Recipient
	for _, key := range f.keys {
		parsed, err := age.ParseRecipients(strings.NewReader(key))
		if err != nil || len(parsed) != 1 {
			return nil, fmt.Errorf("--encrypt-to %q: it must be a public key of age, as age-keygen prints it", key)
		}
		all = append(all, parsed...)
	}
	return all, nil
}

// identityFlags name what decrypts a backup.
type identityFlags struct {
	passphrase passphraseFlag
	file       string
}

func (f *identityFlags) add(fs *pflag.FlagSet) {
	f.passphrase.add(fs, "`file` of the passphrase of an encrypted backup")
	fs.StringVar(&f.file, "identity-file", "", "`file` of the private keys of age for a backup that was made with --encrypt-to")
}

var errEncrypted = errors.New("it is encrypted: name --passphrase-file or --identity-file")

func (f *identityFlags) identities() ([]age.Identity, error) {
	var all []age.Identity
	if f.file != "" {
		data, err := os.ReadFile(f.file)
		if err != nil {
			return nil, fmt.Errorf("--identity-file: %w", err)
		}
		if all, err = age.ParseIdentities(bytes.NewReader(data)); err != nil {
			return nil, fmt.Errorf("--identity-file %s: it has no private keys of age", f.file)
		}
	}
	if f.passphrase != "" {
		text, err := f.passphrase.read()
		if err != nil {
			return nil, err
		}
		identity, err := age.NewScryptIdentity(text)
		if err != nil {
			return nil, fmt.Errorf("--passphrase-file: %w", err)
		}
		all = append(all, identity)
	}
	if len(all) == 0 {
		return nil, errEncrypted
	}
	return all, nil
}

// decrypt returns what a backup holds below its encryption, if it has any.
func decrypt(r *bufio.Reader, identities func() ([]age.Identity, error)) (io.Reader, error) {
	if magic, _ := r.Peek(len(ageMagic)); string(magic) != ageMagic {
		return r, nil
	}
	all, err := identities()
	if err != nil {
		return nil, err
	}
	plain, err := age.Decrypt(r, all...)
	var noMatch *age.NoIdentityMatchError
	switch {
	case errors.As(err, &noMatch):
		return nil, errors.New("its passphrase is another one, or it is encrypted for other keys")
	case err != nil:
		return nil, readError(err, errDamaged)
	}
	return plain, nil
}
