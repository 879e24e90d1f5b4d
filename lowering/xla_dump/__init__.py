"""Dumps of XLA: files of a folder, buffers that XLA assigned, and buffers of a schedule.

``dump_files.py`` says what each file is, ``dump_folder.py`` groups them into programs and passes;
``buffer_assignment.py`` and ``memory_texts.py`` read what XLA says about memory;
``schedule_values.py`` and ``assign_buffers.py`` compute the same from a scheduled module.
"""
