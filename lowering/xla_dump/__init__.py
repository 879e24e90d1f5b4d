"""Dump folders of XLA: their files, their programs, and the memory of these.

``dump_files.py`` says what each file is, ``dump_folder.py`` groups them into programs and passes;
``memory_texts.py`` reads XLA's own numbers of memory;
``schedule_values.py`` and ``assign_buffers.py`` compute the same from a scheduled module.
"""
