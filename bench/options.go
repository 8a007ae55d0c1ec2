package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Scenarios, the values of --only.
const (
	scenarioCreate      = "create"
	scenarioGet         = "get"
	scenarioList        = "list"
	scenarioWatch       = "watch"
	scenarioDefinitions = "definitions"
)

var scenarios = []string{scenarioCreate, scenarioGet, scenarioList, scenarioWatch, scenarioDefinitions}

// builtIn are the built-in kinds to measure, the values of --also, in a namespace.
var builtIn = map[string]func(namespace string) *subject{"configmaps": configMaps, "pods": pods}

// options are the flags. A count and a time limit every scenario.
type options struct {
	portico    string
	dataDir    string
	kubeconfig string
	etcd       string
	only       []string
	also       []string
	json       bool
	profile    string
	keep       bool
	// flags returns more flags of "portico up", and may write files to a folder; nil: none.
	flags func(dir string) ([]string, error)

	objects, size        int
	workers, connections int
	rounds               int
	time                 time.Duration
	gets, lists          int
	watchers, window     int
	updates              int
	definitions          int
	threads              int
	rest, limit          time.Duration
}

// defaultObjects is the number of objects to which the memory goals apply.
const defaultObjects = 5000

// maxUpdates bounds the updates in one round of watch.
const maxUpdates = 1 << 20

func (o *options) add(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&o.portico, "portico", "", "`program` to start a new installation with, in a temporary folder")
	fs.StringVar(&o.dataDir, "data-dir", "", "data `folder` of a running \"portico up\"")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the installation (default: the one in --data-dir)")
	fs.StringVar(&o.etcd, "etcd", "", "`URL` of the etcd of the installation, unix:///path or http://host:port (default: the socket in --data-dir)")
	fs.StringSliceVar(&o.only, "only", scenarios, "`scenarios` to run; get, list and watch create the objects first")
	fs.StringSliceVar(&o.also, "also", nil, "built-in `kinds` to measure as well: configmaps, pods")
	fs.BoolVar(&o.json, "json", false, "print the report as JSON")
	fs.StringVar(&o.profile, "profile", "", "`folder` for CPU profiles of gateway, core, crd and this program")
	fs.BoolVar(&o.keep, "keep", false, "do not delete the created objects")
	fs.IntVar(&o.objects, "objects", defaultObjects, "number of objects")
	fs.IntVar(&o.size, "size", 3500, "size of an object as JSON in bytes, 2000 to 1000000")
	fs.IntVar(&o.workers, "workers", 16, "number of requests in flight")
	fs.IntVar(&o.connections, "connections", 4, "number of HTTP/2 connections")
	fs.IntVar(&o.rounds, "rounds", 3, "number of rounds of each measurement and its yardstick")
	fs.DurationVar(&o.time, "time", 2*time.Second, "time limit of one round of get or watch; of list, ten times that")
	fs.IntVar(&o.gets, "gets", 50000, "maximum of GETs in one round")
	fs.IntVar(&o.lists, "lists", 48, "maximum of LISTs in one round")
	fs.IntVar(&o.watchers, "watchers", 300, "number of watches")
	fs.IntVar(&o.updates, "updates", 0, "updates per second during watch (default: as many as --window allows)")
	fs.IntVar(&o.window, "window", 50, "maximum of updates that the slowest watch may be behind")
	fs.IntVar(&o.definitions, "definitions", 500, "number of CustomResourceDefinitions; a tenth of them are created one at a time")
	fs.DurationVar(&o.rest, "rest", 12*time.Second, "idle time before memory is read a second time; 0 is none")
	fs.IntVar(&o.threads, "threads", max(1, runtime.NumCPU()/2), "GOMAXPROCS of this program")
	fs.DurationVar(&o.limit, "limit", 5*time.Minute, "time limit of the run, without deleting the objects")
}

// check validates the flags.
func (o *options) check() error {
	if err := o.checkInstallation(); err != nil {
		return err
	}
	for _, s := range o.only {
		if !slices.Contains(scenarios, s) {
			return fmt.Errorf("--only=%s: unknown scenario; the scenarios are %s", s, strings.Join(scenarios, ", "))
		}
	}
	for _, kind := range o.also {
		if builtIn[kind] == nil {
			return fmt.Errorf("--also=%s: unknown kind; the kinds are %s", kind, strings.Join(slices.Sorted(maps.Keys(builtIn)), ", "))
		}
	}
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"objects", o.objects, 1, 100000},
		{"size", o.size, 2000, 1000000},
		{"workers", o.workers, 1, 1000},
		{"connections", o.connections, 1, 100},
		{"rounds", o.rounds, 1, 100},
		{"gets", o.gets, 1, 10000000},
		{"lists", o.lists, 1, 100000},
		{"watchers", o.watchers, 1, 10000},
		{"updates", o.updates, 0, 100000},
		{"window", o.window, 1, 100000},
		{"definitions", o.definitions, 1, 10000},
		{"threads", o.threads, 1, 1000},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("--%s=%d: must be from %d to %d", f.name, f.value, f.min, f.max)
		}
	}
	if o.time < 100*time.Millisecond || o.rest < 0 || o.limit < time.Second {
		return errors.New("--time must be at least 100ms, --rest at least 0s, --limit at least 1s")
	}
	if o.objects < o.workers && o.runs(scenarioWatch) {
		return fmt.Errorf("--objects=%d: watch needs at least --workers=%d objects, so that updates do not conflict", o.objects, o.workers)
	}
	return nil
}

// checkInstallation validates the flags that select the installation.
func (o *options) checkInstallation() error {
	if o.portico != "" {
		if o.dataDir != "" || o.kubeconfig != "" || o.etcd != "" {
			return errors.New("--portico starts a new installation and excludes --data-dir, --kubeconfig and --etcd")
		}
		return nil
	}
	if o.dataDir != "" {
		o.useDataDir()
	}
	if o.kubeconfig == "" {
		return errors.New("one of --portico, --data-dir and --kubeconfig is required")
	}
	return nil
}

// useDataDir sets kubeconfig and etcd from the data folder, unless they are set.
func (o *options) useDataDir() {
	if o.kubeconfig == "" {
		o.kubeconfig = filepath.Join(o.dataDir, "kubeconfig")
	}
	socket := filepath.Join(o.dataDir, "run", "etcd.sock")
	if _, err := os.Stat(socket); err == nil && o.etcd == "" {
		if absolute, err := filepath.Abs(socket); err == nil {
			o.etcd = "unix://" + absolute
		}
	}
}

func (o *options) runs(scenario string) bool { return slices.Contains(o.only, scenario) }

// needsObjects reports whether a selected scenario needs objects.
func (o *options) needsObjects() bool {
	return o.runs(scenarioCreate) || o.runs(scenarioGet) || o.runs(scenarioList) || o.runs(scenarioWatch)
}
