package main

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// report prints what the harness wants to know, one line of JSON each.
type report struct {
	mutex      sync.Mutex
	reconciles int
	errors     int
	expect     int
	// succeeded are the resources that were reconciled without an error; nil as soon as nobody asks any more.
	succeeded map[types.NamespacedName]struct{}
}

type line struct {
	Event      string `json:"event"`
	UnixNanos  int64  `json:"unix_nanos"`
	Reconciles int    `json:"reconciles"`
	Errors     int    `json:"errors"`
}

func newReport(expect int) *report {
	report := &report{expect: expect}
	if expect > 0 {
		report.succeeded = make(map[types.NamespacedName]struct{}, expect)
	}
	return report
}

// wrap counts what the reconciler does.
func (r *report) wrap(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		r.begins()
		result, err := inner.Reconcile(ctx, request)
		r.ended(request.NamespacedName, err)
		return result, err
	})
}

// stats prints the totals.
func (r *report) stats() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.print("stats")
}

func (r *report) begins() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.reconciles++
	if r.reconciles == 1 {
		r.print("first_reconcile")
	}
}

func (r *report) ended(key types.NamespacedName, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if err != nil {
		r.errors++
		return
	}
	if r.succeeded == nil {
		return
	}
	r.succeeded[key] = struct{}{}
	if len(r.succeeded) == r.expect {
		r.succeeded = nil
		r.print("settled")
	}
}

// print is called with the mutex held. Nobody is left to hear of an error.
func (r *report) print(event string) {
	_ = json.NewEncoder(os.Stdout).Encode(line{
		Event:      event,
		UnixNanos:  time.Now().UnixNano(),
		Reconciles: r.reconciles,
		Errors:     r.errors,
	})
}
