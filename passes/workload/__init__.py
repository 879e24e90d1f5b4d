"""Workloads: the calls and arrays that programs are compared over.

Read :mod:`make_workload` first. Data flow: :mod:`program_shapes` runs the pipeline once and gathers
the programs of all stages; :mod:`script_choice` chooses a script by the rewrites it made;
:mod:`short_script` and :mod:`adversarial_script` plan calls (:mod:`call_plan`); :mod:`draw_calls`
draws their arrays, with numbers of :mod:`random_arrays` or :mod:`value_ranges`.
"""
