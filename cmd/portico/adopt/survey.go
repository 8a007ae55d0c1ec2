package adopt

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"portico/cmd/portico/cli"
	"portico/resource"
	"portico/resource/etcd"
)

// Row is what becomes of the objects of a resource that are stored alike.
type Row struct {
	Resource string  `json:"resource"`
	Path     string  `json:"path"`
	Version  string  `json:"version,omitempty"` // apiVersion as stored
	Encoding string  `json:"encoding,omitempty"`
	Objects  int64   `json:"objects"`
	Outcome  Outcome `json:"outcome"`
	Note     string  `json:"note,omitempty"`
	// Example is the key of an object that is not served, below the prefix.
	Example string `json:"example,omitempty"`
}

// survey reads all keys of an etcd.
type survey struct {
	client  *etcd.Client
	catalog catalog
	rows    map[Row]*Row // by itself, without Objects and Example
	facts   facts
}

func newSurvey(client *etcd.Client, keys tokenKeys) (*survey, error) {
	c, err := newCatalog(client)
	if err != nil {
		return nil, err
	}
	return &survey{client: client, catalog: c, rows: map[Row]*Row{}, facts: facts{keys: keys, now: time.Now()}}, nil
}

// run reads everything, and reports progress once a second.
func (s *survey) run(ctx context.Context, errOut io.Writer) error {
	counts, err := s.client.Count(ctx, 0)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	if err := s.catalog.addCustomResources(ctx, s.client); err != nil {
		return err
	}
	p := cli.StartProgress(ctx, errOut, "reading etcd", total, func(n int64) string { return fmt.Sprintf("%d keys", n) })
	defer p.Stop()
	return s.client.Scan(ctx, "", func(path string, value []byte) error {
		s.add(path, value)
		p.Add(1)
		return nil
	})
}

// add counts one key.
func (s *survey) add(key string, value []byte) {
	known, path := s.catalog.find(key)
	row := Row{Resource: path, Path: path}
	if known != nil {
		row.Resource = known.resource.String()
	}
	s.judge(&row, known, key, value)
	kept := s.rows[row]
	if kept == nil {
		id := row
		kept = &row
		if slices.Contains([]Outcome{outcomeVersion, outcomeUnknown, outcomeEncrypted, outcomeDamaged}, row.Outcome) {
			kept.Example = key
		}
		s.rows[id] = kept
	}
	kept.Objects++
}

// judge sets the version and the outcome of a row from one of its values.
func (s *survey) judge(row *Row, known *served, key string, value []byte) {
	plain, err := s.client.Decrypt(key, value)
	if err != nil {
		row.Outcome, row.Note = outcomeEncrypted, etcd.Encryption(value)
		return
	}
	o, err := resource.Parse(plain)
	if err == nil {
		row.Version, row.Encoding = o.APIVersion, "json"
		if o.Encoding == resource.Protobuf {
			row.Encoding = "protobuf"
		}
	}
	if note, own := ignored[row.Path]; own {
		row.Outcome, row.Note = outcomeIgnored, note
		s.facts.addServer(strings.TrimPrefix(key, row.Path+"/"), row.Path)
		return
	}
	switch {
	case err != nil:
		row.Outcome = outcomeDamaged
		return
	case known == nil:
		row.Outcome = outcomeUnknown
		return
	}
	decoded, err := known.decode(o)
	switch {
	case known.unserved(o, err):
		row.Outcome = outcomeVersion
	case err != nil:
		row.Outcome = outcomeDamaged
	default:
		row.Outcome, row.Note = outcomeOf(row.Path, o, decoded)
		s.facts.add(o, decoded)
	}
}

// table returns the rows in the order of their resources; what is not served is last.
func (s *survey) table() []Row {
	var all []Row
	for _, r := range s.rows {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Row) int {
		return strings.Compare(a.Resource+"\x00"+a.Version+"\x00"+string(a.Outcome)+a.Note, b.Resource+"\x00"+b.Version+"\x00"+string(b.Outcome)+b.Note)
	})
	return all
}
