//go:build kubeapiserver

package fields

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
	"portico/cmd/e2e/kubeapiserver"
	"portico/internal/testing/fieldtest"
)

func TestMain(m *testing.M) {
	etcdprocess.Be()
	os.Exit(e2e.MainUnlessShort(m))
}

var record = flag.Bool("record", false, "write the outcomes of kube-apiserver to testdata of package crd")

// settleTime is longer than the controllers of kube-apiserver take for the status of a definition,
// discovery and what is served, and finishTime than they take for what they try again. Nothing tells
// when they have finished.
const (
	settleTime = 2 * time.Second
	finishTime = 10 * time.Second
)

// kube-apiserver has the outcomes in the tables of fields.
func TestFieldsOfKubeAPIServer(t *testing.T) {
	k := kubeapiserver.Start(t, etcdprocess.Start(t).Endpoint(), t.TempDir())
	client, err := rest.HTTPClientFor(k.Config)
	if err != nil {
		t.Fatal(err)
	}
	server := &fieldtest.Server{URL: k.Host, Client: client, Settle: func(t testing.TB, _ string) { pause(t, settleTime) }}
	for _, name := range []string{"fields.yaml", "definitions.yaml"} {
		file := filepath.Join("..", "..", "..", "backends", "crd", "testdata", name)
		rows := fieldtest.Load(t, file)
		t.Run(name, func(t *testing.T) {
			for i := range rows {
				t.Run(rows[i].Field, func(t *testing.T) {
					t.Parallel()
					if *record {
						rows[i].Record(t, server, func() { pause(t, finishTime) })
					} else {
						rows[i].Run(t, server, false)
					}
				})
			}
		})
		if *record && !t.Failed() {
			fieldtest.Save(t, file, rows)
		}
	}
}

func pause(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
